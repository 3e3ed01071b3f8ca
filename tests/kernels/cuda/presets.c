#include "tests/kernels/cuda/presets.h"

#include "engine/graph/op.h"
#include "engine/model/model.h"
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { GPT2_TOKENS = 50257, LLAMA_TOKENS = 128256, BATCH = 8 };

static const struct preset {
    const char *name;
    struct model_config model;
    struct model_data data;
} presets[] = {
    { "gpt2 124M", { &model_gpt, { .gpt = { 12, 12, 768, 1024, 0, 0 } } }, { .vocabulary = GPT2_TOKENS } },
    { "gpt2 350M", { &model_gpt, { .gpt = { 24, 16, 1024, 1024, 0, 0 } } }, { .vocabulary = GPT2_TOKENS } },
    { "gpt2 1558M", { &model_gpt, { .gpt = { 48, 25, 1600, 1024, 0, 0 } } }, { .vocabulary = GPT2_TOKENS } },
    { "gpt by characters", { &model_gpt, { .gpt = { 6, 6, 384, 256, 0, 0 } } }, { .vocabulary = 65 } },
    { "llama 1B",
      { &model_llama,
        { .llama = { .layers = 16,
                     .heads = 32,
                     .width = 2048,
                     .context = 2048,
                     .kv_heads = 8,
                     .hidden = 8192,
                     .tied_embeddings = true,
                     .rope_theta = 1e4,
                     .norm_eps = 1e-5 } } },
      { .vocabulary = LLAMA_TOKENS } },
    { "llama 8B",
      { &model_llama,
        { .llama = { .layers = 32,
                     .heads = 32,
                     .width = 4096,
                     .context = 2048,
                     .kv_heads = 8,
                     .hidden = 14336,
                     .rope_theta = 1e4,
                     .norm_eps = 1e-5 } } },
      { .vocabulary = LLAMA_TOKENS } },
    { "llama small",
      { &model_llama,
        { .llama = { .layers = 6,
                     .heads = 6,
                     .width = 288,
                     .context = 256,
                     .kv_heads = 6,
                     .hidden = 768,
                     .rope_theta = 1e4,
                     .norm_eps = 1e-5 } } },
      { .vocabulary = 512 } },
    { "resnet 18, small images",
      { &model_resnet, { .resnet = { .layers = 18, .width = 64 } } },
      { .classes = 10, .channels = 3, .height = 32, .width = 32 } },
    { "resnet 34",
      { &model_resnet, { .resnet = { .layers = 34, .width = 64 } } },
      { .classes = 1000, .channels = 3, .height = 224, .width = 224 } },
    { "resnet 50",
      { &model_resnet, { .resnet = { .layers = 50, .width = 64 } } },
      { .classes = 1000, .channels = 3, .height = 224, .width = 224 } },
    { "vit B/16",
      { &model_vit, { .vit = { .layers = 12, .heads = 12, .width = 768, .patch = 16, .hidden = 3072 } } },
      { .classes = 1000, .channels = 3, .height = 224, .width = 224 } },
    { "vit, small images",
      { &model_vit, { .vit = { .layers = 6, .heads = 6, .width = 384, .patch = 4, .hidden = 1536 } } },
      { .classes = 10, .channels = 3, .height = 32, .width = 32 } },
    { "unrolled",
      { &model_unrolled, { .unrolled = { .iterations = 5, .channels = 32, .layers = 3 } } },
      { .channels = 1, .height = 64, .width = 64 } },
};

int preset_count(void) { return (int)(sizeof presets / sizeof *presets); }
const char *preset_name(int i) { return presets[i].name; }

/* A table whose functions only record their arguments. */
struct asked {
    struct kernels table; /* first */
    struct preset_shapes *shapes;
};
static struct preset_shapes *shapes_of(const struct kernels *k) { return ((const struct asked *)k)->shapes; }

#define REMEMBER(name, kind)                                                                                           \
    static size_t name(const struct kernels *k, const struct kind##_dims *d) {                                         \
        struct preset_shapes *s = shapes_of(k);                                                                        \
        for (int i = 0; i < s->n_##kind; i++)                                                                          \
            if (memcmp(&s->kind[i], d, sizeof *d) == 0)                                                                \
                return 0;                                                                                              \
        assert_true(s->n_##kind < MAX_PRESET_SHAPES);                                                                  \
        memcpy(&s->kind[s->n_##kind++], d, sizeof *d);                                                                 \
        return 0;                                                                                                      \
    }
REMEMBER(ask_attention, attention)
REMEMBER(ask_convolution, convolution)
REMEMBER(ask_linear, linear)

static size_t ask_bias(const struct kernels *k, const struct linear_dims *d) {
    (void)k, (void)d;
    return 0;
}

void preset_shapes(int i, struct preset_shapes *ret) {
    const struct asked asked = { .table = { .precision = KERNELS_BF16,
                                            .attention_workspace = ask_attention,
                                            .convolution_workspace = ask_convolution,
                                            .linear_backward_weight_workspace = ask_linear,
                                            .linear_backward_bias_workspace = ask_bias },
                                 .shapes = ret };
    struct model_config model = presets[i].model;
    struct graph *g = NULL;
    memset(ret, 0, sizeof *ret);
    OK(model_resolve(&model, &presets[i].data, e));
    OK(model_build(&model, &presets[i].data, BATCH, DTYPE_BF16, &g, e));
    for (int op = 0; op < g->n_ops; op++) {
        const char *kind = g->ops[op].kind->name;
        if (strncmp(kind, "attention", 9) == 0 || strncmp(kind, "convolution", 11) == 0 ||
            strncmp(kind, "linear", 6) == 0)
            (void)g->ops[op].kind->workspace(&asked.table, g, &g->ops[op]);
    }
    graph_free(g);
}
