/* A small model of each family against PyTorch 2.13 (record_models.py, which also documents the format of the recorded
 * files): ten losses to 1e-4 relative in fp32, to 1e-2 in bf16 (weights in bf16, masters in fp32), and the gradients of
 * the first step tensor by tensor. The first step, repeated, gives the same loss and gradients to the bit. walk.h
 * selects the device. The variable STEPS asks for fewer steps, and REPEATS for more repeats. */
#include "base/file.h"
#include "engine/model/model.h"
#include "tests/engine/walk.h"

enum { STEPS = 10, BATCH = 4, REPEATS = 3, FILE_BYTES_MOST = 1 << 20 };

struct family {
    const char *file;
    struct model_config config;
    struct model_data data;
    double rate;
    int batch;
};

#define LLAMA(tied)                                                                                                    \
    {                                                                                                                  \
        .layers = 2, .heads = 4, .kv_heads = 2, .width = 32, .hidden = 48, .context = 8, .rope_theta = 1e4,            \
        .norm_eps = 1e-5, .tied_embeddings = (tied)                                                                    \
    }

static const struct family GPT_RECORDED = { "gpt",
                                            { .kind = &model_gpt,
                                              .gpt = { .layers = 2, .heads = 2, .width = 16, .context = 8 } },
                                            { .vocabulary = 33 },
                                            1e-2,
                                            BATCH };
static const struct family LLAMA_RECORDED = {
    "llama", { .kind = &model_llama, .llama = LLAMA(false) }, { .vocabulary = 33 }, 1e-2, BATCH
};
static const struct family LLAMA_TIED_RECORDED = {
    "llama_tied", { .kind = &model_llama, .llama = LLAMA(true) }, { .vocabulary = 33 }, 1e-2, BATCH
};
static const struct family MLP_RECORDED = { "mlp",
                                            { .kind = &model_mlp, .mlp = { .hidden = { 16, 12 }, .n_hidden = 2 } },
                                            { .classes = 5, .channels = 1, .height = 6, .width = 8 },
                                            1e-2,
                                            BATCH };

static const struct family RESNET18_RECORDED = { "resnet18",
                                                 { .kind = &model_resnet, .resnet = { .layers = 18, .width = 3 } },
                                                 { .classes = 5, .channels = 3, .height = 32, .width = 32 },
                                                 1e-4,
                                                 8 };
static const struct family RESNET50_RECORDED = {
    "resnet50",
    { .kind = &model_resnet, .resnet = { .layers = 50, .width = 2, .stem = RESNET_STEM_IMAGENET } },
    { .classes = 5, .channels = 3, .height = 64, .width = 64 },
    1e-4,
    8
};
static const struct family VIT_RECORDED = {
    "vit",
    { .kind = &model_vit, .vit = { .layers = 2, .heads = 2, .width = 16, .patch = 4, .hidden = 24 } },
    { .classes = 5, .channels = 3, .height = 8, .width = 12 },
    3e-3,
    BATCH
};
static const struct family UNROLLED_RECORDED = { "unrolled",
                                                 { .kind = &model_unrolled,
                                                   .unrolled = { .iterations = 3, .channels = 6, .layers = 3 } },
                                                 { .channels = 1, .height = 8, .width = 8 },
                                                 1e-2,
                                                 BATCH };
static const struct family UNROLLED_SHARED_RECORDED = {
    "unrolled_shared",
    { .kind = &model_unrolled, .unrolled = { .iterations = 3, .channels = 6, .layers = 3, .shared_weights = true } },
    { .channels = 1, .height = 8, .width = 8 },
    1e-2,
    BATCH
};

/* --- the numbers that record_models.py makes too ---*/

static float hashed(int64_t i, int which) {
    uint32_t u = (uint32_t)i * 2654435761u + (uint32_t)(which + 1) * 2246822519u;
    u ^= u >> 15;
    u *= 2654435761u;
    u ^= u >> 13;
    return (float)((double)u / 2147483648.0 - 1);
}

static int64_t integer(int64_t i, int64_t step, int64_t modulus) { return (7 * i * i + 3 * i + 5 * step) % modulus; }

static float pixel(int64_t i, int64_t step) { return (float)integer(i, step, 251) / 125 - 1; }

struct trial {
    struct walk w;
    const struct family *family;
    struct now {
        double rate;
        struct update update;
    } * now;      /* as the optimizer's kernels see them */
    int *by_name; /* parameters in the order of their names */
    int n;        /* without statistics */
};

static const struct graph *names_of;
static int compare_names(const void *a, const void *b) {
    return strcmp(names_of->parameters[*(const int *)a].name, names_of->parameters[*(const int *)b].name);
}

static void put_parameters(struct trial *t) {
    const struct graph *g = t->w.graph;
    for (int k = 0; k < t->n; k++) {
        const struct parameter *p = &g->parameters[t->by_name[k]];
        const int64_t n = shape_elements(&p->shape);
        const float one = strstr(p->name, "bn3") ? 0.15f : 1.0f, start = p->init == INIT_ONE ? one : 0;
        const float size = p->shape.n > 1 ? (float)(1 / sqrt((double)n / (double)p->shape.dim[0])) : 0.1f;
        for (int64_t i = 0; i < n; i++)
            t->w.master[t->by_name[k]][i] = start + hashed(i, k) * size;
    }
}

static void trial_open(struct trial *t, const struct family *f, enum dtype element) {
    struct err e;
    struct model_config config = f->config;
    struct graph *g;
    *t = (struct trial){ .family = f };
    if (model_resolve(&config, &f->data, &e) != ST_OK ||
        model_build(&config, &f->data, f->batch, element, &g, &e) != ST_OK)
        fail_msg("%s: %s", f->file, e.msg);
    walk_open(&t->w, g, 2);
    t->w.loss_scale = (float)(1.0 / (double)shape_elements(&g->tensors[g->losses].shape));
    t->now = walk_memory(&t->w, sizeof *t->now);
    t->by_name = calloc((size_t)g->n_parameters, sizeof *t->by_name);
    for (int i = 0; i < g->n_parameters; i++)
        if (g->parameters[i].kind == PARAMETER_WEIGHT)
            t->by_name[t->n++] = i;
    names_of = g;
    qsort(t->by_name, (size_t)t->n, sizeof *t->by_name, compare_names);
    put_parameters(t);
}

static void trial_close(struct trial *t) {
    walk_memory_free(&t->w, t->now);
    walk_close(&t->w);
    free(t->by_name);
}

/* --- inputs ---*/

static void put_floats(struct trial *t, int tensor, const float *values) {
    struct err e;
    const struct graph *g = t->w.graph;
    const int64_t n = shape_elements(&g->tensors[tensor].shape);
    if (g->tensors[tensor].dtype == DTYPE_F32)
        memcpy(t->w.tensor[tensor], values, (size_t)n * sizeof *values);
    else
        assert_int_equal(t->w.kernels->upload_elements(t->w.kernels, t->w.tensor[tensor], values, n, &e), ST_OK);
    walk_finish(&t->w);
}

static void put_input(struct trial *t, int tensor) {
    const struct tensor *of = &t->w.graph->tensors[tensor];
    const int64_t n = shape_elements(&of->shape), step = t->w.step;
    CLEANUP(freep) float *values = calloc((size_t)n, sizeof *values);
    int32_t *integers = t->w.tensor[tensor];
    for (int64_t i = 0; i < n; i++) {
        const int64_t context = t->family->config.llama.context;
        switch (of->input) {
        case BATCH_TOKENS: integers[i] = (int32_t)integer(i + i / context, step, t->family->data.vocabulary); break;
        case BATCH_TARGETS:
            integers[i] = (int32_t)integer(i + i / context + 1, step, t->family->data.vocabulary);
            break;
        case BATCH_LABELS: integers[i] = (int32_t)((i * 3 + step) % t->family->data.classes); break;
        case BATCH_IMAGES:
        case BATCH_REFERENCE: values[i] = pixel(i, step); break;
        case BATCH_MEASUREMENTS: values[i] = pixel(i, step + 1); break;
        default: values[i] = integer(i, step + 2, 3) == 0;
        }
    }
    if (!batch_input_is_integer(of->input))
        put_floats(t, tensor, values);
}

/* The gradients of a step, and its loss. */
static double run_passes(struct trial *t) {
    for (int i = 0; i < t->w.graph->n_batch; i++)
        put_input(t, t->w.graph->batch[i]);
    walk_weights(&t->w);
    const double loss = walk_forward(&t->w);
    walk_backward(&t->w);
    return loss;
}

static double run_step(struct trial *t) {
    struct err e;
    const double loss = run_passes(t);
    t->w.step++;
    *t->now = (struct now){ t->family->rate, { .number = t->w.step, .gradient_scale = 1 } };
    for (int k = 0; k < t->n; k++) {
        const int p = t->by_name[k];
        const struct adamw adamw = { .learning_rate = &t->now->rate,
                                     .update = &t->now->update,
                                     .beta1 = 0.9,
                                     .beta2 = 0.99,
                                     .epsilon = 1e-8,
                                     .weight_decay = 0.1 };
        const struct span span = { .n = walk_elements(&t->w, p),
                                   .p = t->w.master[p],
                                   .m = t->w.moment1[p],
                                   .v = t->w.moment2[p],
                                   .x = walk_gradient(&t->w, p),
                                   .decay = t->w.graph->parameters[p].decay };
        assert_int_equal(t->w.kernels->adamw(t->w.kernels, &span, 1, &adamw, &e), ST_OK);
    }
    walk_finish(&t->w);
    return loss;
}

/* --- the checks --- */

/* Relative to the tensor's length; some have no gradient but noise (a key's bias). */
static void compare_gradients(struct trial *t, const float *want) {
    for (int k = 0; k < t->n; k++) {
        const int p = t->by_name[k];
        const float *have = walk_gradient(&t->w, p);
        double difference = 0, size = 0;
        for (int64_t i = 0; i < walk_elements(&t->w, p); i++) {
            difference += pow((double)have[i] - (double)want[i], 2);
            size += pow((double)want[i], 2);
        }
        if (!(sqrt(difference) <= 1e-4 * sqrt(size) + 1e-7))
            fail_msg("%s: the gradient of %s is off by %g of %g", t->family->file, t->w.graph->parameters[p].name,
                     sqrt(difference), sqrt(size));
        want += walk_elements(&t->w, p);
    }
}

static int asked(const char *name, int otherwise) {
    const char *number = getenv(name);
    return number ? atoi(number) : otherwise;
}

static void agrees(const struct family *f, enum dtype element, double tolerance) {
    struct trial t;
    struct err e;
    struct bytes file;
    char path[400];
    snprintf(path, sizeof path, "%s/tests/engine/models/%s.f32", getenv("TRAINYARD_SOURCE"), f->file);
    bytes_init(&file, FILE_BYTES_MOST);
    assert_int_equal(file_read(path, &file, &e), ST_OK);
    const float *exact = (const float *)file.data, *want = element == DTYPE_F32 ? exact : exact + STEPS;
    trial_open(&t, f, element);
    int64_t elements = 0;
    for (int k = 0; k < t.n; k++)
        elements += walk_elements(&t.w, t.by_name[k]);
    assert_int_equal(file.len, (size_t)(2 * STEPS + elements) * sizeof(float));
    for (int step = 0; step < asked("STEPS", STEPS); step++) {
        const double loss = run_step(&t);
        if (!(fabs(loss - (double)want[step]) <= tolerance * (double)want[step]))
            fail_msg("%s, step %d: the loss is %.7g, PyTorch's %.7g", f->file, step + 1, loss, (double)want[step]);
        if (step == 0 && element == DTYPE_F32)
            compare_gradients(&t, exact + 2 * STEPS);
    }
    trial_close(&t);
    bytes_done(&file);
}

/* Of every parameter, one after the other. */
static void copy_gradients(struct trial *t, float *to) {
    for (int k = 0; k < t->n; k++) {
        const int64_t n = walk_elements(&t->w, t->by_name[k]);
        memcpy(to, walk_gradient(&t->w, t->by_name[k]), (size_t)n * sizeof *to);
        to += n;
    }
}

static void repeats_to_the_bit(const struct family *f, enum dtype element) {
    const int repeats = asked("REPEATS", REPEATS);
    struct trial trial, *t = &trial;
    if (repeats < 2)
        skip();
    trial_open(t, f, element);
    int64_t elements = 0;
    for (int k = 0; k < t->n; k++)
        elements += walk_elements(&t->w, t->by_name[k]);
    CLEANUP(freep) float *first = calloc((size_t)elements, sizeof *first);
    CLEANUP(freep) float *again = calloc((size_t)elements, sizeof *again);
    const double loss = run_passes(t);
    copy_gradients(t, first);
    for (int i = 1; i < repeats; i++) {
        const double now = run_passes(t);
        copy_gradients(t, again);
        if (memcmp(&loss, &now, sizeof loss) != 0 || memcmp(first, again, (size_t)elements * sizeof *first) != 0)
            fail_msg("%s, repeat %d: other bits; the loss was %.17g, is %.17g", f->file, i, loss, now);
    }
    trial_close(t);
}

#define FAMILY_TESTS(name, family)                                                                                     \
    static void name##_agrees_in_fp32(void **state) {                                                                  \
        (void)state;                                                                                                   \
        agrees(&(family), DTYPE_F32, 1e-4);                                                                            \
    }                                                                                                                  \
    static void name##_agrees_in_bf16(void **state) {                                                                  \
        (void)state;                                                                                                   \
        agrees(&(family), DTYPE_BF16, 1e-2);                                                                           \
    }                                                                                                                  \
    static void name##_repeats_to_the_bit(void **state) {                                                              \
        (void)state;                                                                                                   \
        repeats_to_the_bit(&(family), DTYPE_F32);                                                                      \
        repeats_to_the_bit(&(family), DTYPE_BF16);                                                                     \
    }

FAMILY_TESTS(gpt, GPT_RECORDED)
FAMILY_TESTS(llama, LLAMA_RECORDED)
FAMILY_TESTS(llama_with_tied_embeddings, LLAMA_TIED_RECORDED)
FAMILY_TESTS(mlp, MLP_RECORDED)
FAMILY_TESTS(resnet18, RESNET18_RECORDED)
FAMILY_TESTS(resnet50, RESNET50_RECORDED)
FAMILY_TESTS(vit, VIT_RECORDED)
FAMILY_TESTS(unrolled, UNROLLED_RECORDED)
FAMILY_TESTS(unrolled_with_shared_weights, UNROLLED_SHARED_RECORDED)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_agrees_in_fp32),
        cmocka_unit_test(gpt_agrees_in_bf16),
        cmocka_unit_test(gpt_repeats_to_the_bit),
        cmocka_unit_test(llama_agrees_in_fp32),
        cmocka_unit_test(llama_agrees_in_bf16),
        cmocka_unit_test(llama_repeats_to_the_bit),
        cmocka_unit_test(llama_with_tied_embeddings_agrees_in_fp32),
        cmocka_unit_test(llama_with_tied_embeddings_agrees_in_bf16),
        cmocka_unit_test(llama_with_tied_embeddings_repeats_to_the_bit),
        cmocka_unit_test(mlp_agrees_in_fp32),
        cmocka_unit_test(mlp_agrees_in_bf16),
        cmocka_unit_test(mlp_repeats_to_the_bit),
        cmocka_unit_test(resnet18_agrees_in_fp32),
        cmocka_unit_test(resnet18_agrees_in_bf16),
        cmocka_unit_test(resnet18_repeats_to_the_bit),
        cmocka_unit_test(resnet50_agrees_in_fp32),
        cmocka_unit_test(resnet50_agrees_in_bf16),
        cmocka_unit_test(resnet50_repeats_to_the_bit),
        cmocka_unit_test(vit_agrees_in_fp32),
        cmocka_unit_test(vit_agrees_in_bf16),
        cmocka_unit_test(vit_repeats_to_the_bit),
        cmocka_unit_test(unrolled_agrees_in_fp32),
        cmocka_unit_test(unrolled_agrees_in_bf16),
        cmocka_unit_test(unrolled_repeats_to_the_bit),
        cmocka_unit_test(unrolled_with_shared_weights_agrees_in_fp32),
        cmocka_unit_test(unrolled_with_shared_weights_agrees_in_bf16),
        cmocka_unit_test(unrolled_with_shared_weights_repeats_to_the_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
