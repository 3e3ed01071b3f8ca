/* One optimizer step of three language models and a residual network on this machine, and beside it, in the same
 * process, what its matrix products and the optimizer alone would take: the same linear products with no bias, no GELU
 * and nothing between them, and one AdamW pass. (The network's products are convolutions: it has no bound here.)
 *
 *     bench_train char|gpt2|llama|resnet18 fp32|bf16 [threads] [steps] [cpu]
 *
 * Prints one JSON object: milliseconds of the median and the fastest step, of the bound, and by kind of op. */
#include "engine/graph/op.h"
#include "engine/model/model.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/verify/verify.h"
#include "engine/run/execute.h"
#include "engine/run/initial.h"
#include "engine/run/instructions.h"
#include "engine/run/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 3, STEPS_MOST = 1000, KINDS_MOST = 24, TOKENS_MOST = 12 * 256, SIDE = 64, CHANNELS = 3, CLASSES = 10 };

struct setting {
    const char *name;
    struct model_config model;
    int batch;
};

/* A sample is a token, or an image. char: nanoGPT's for tinyshakespeare; gpt2: GPT-2 124M; llama: 15M, the size of the
 * TinyStories one. */
static const struct setting SETTINGS[] = {
    { "char",
      { &model_gpt, { .gpt = { .layers = 6, .heads = 6, .width = 384, .context = 256, .vocabulary = 65 } } },
      12 },
    { "gpt2",
      { &model_gpt, { .gpt = { .layers = 12, .heads = 12, .width = 768, .context = 64, .vocabulary = 50257 } } },
      4 },
    { "llama",
      { &model_llama,
        { .llama = { .layers = 6,
                     .heads = 6,
                     .kv_heads = 6,
                     .width = 288,
                     .hidden = 768,
                     .context = 256,
                     .vocabulary = 32000,
                     .tied_embeddings = true,
                     .rope_theta = 1e4,
                     .norm_eps = 1e-5 } } },
      4 },
    { "resnet18", { &model_resnet, { .resnet = { .layers = 18, .width = 64 } } }, 16 },
};

struct bench {
    const struct setting *setting;
    int context, vocabulary; /* 0 for images */
    float *images;
    struct graph *graph;
    struct plan *plan;
    struct kernels *kernels;
    struct arena arena;
    struct execution x;
    struct optimizer_config optimizer;
    int32_t tokens[TOKENS_MOST], targets[TOKENS_MOST];
};

static void die(const struct err *e) {
    fprintf(stderr, "bench_train: %s\n", e->msg);
    exit(1);
}

static status_t load(void *ctx, int k, struct batch *ret, struct err *e) {
    (void)k, (void)e;
    struct bench *b = ctx;
    uint32_t state = (uint32_t)b->x.step + 1;
    for (int i = 0; i < b->setting->batch * b->context; i++) {
        b->tokens[i] = (int32_t)((state = state * 1664525 + 1013904223) >> 8) % b->vocabulary;
        b->targets[i] = (int32_t)((state = state * 1664525 + 1013904223) >> 8) % b->vocabulary;
    }
    for (int i = 0; b->context == 0 && i < b->setting->batch; i++)
        b->targets[i] = (int32_t)((state = state * 1664525 + 1013904223) >> 8) % CLASSES;
    ret->of[BATCH_TOKENS] = b->tokens;
    ret->of[BATCH_TARGETS] = b->targets;
    ret->of[BATCH_IMAGES] = b->images;
    ret->of[BATCH_LABELS] = b->targets;
    return ST_OK;
}

static size_t workspace_bytes(const struct bench *b) {
    size_t most = 0;
    for (int i = 0; i < b->graph->n_ops; i++) {
        const struct op *op = &b->graph->ops[i];
        size_t bytes = op->kind->workspace ? op->kind->workspace(b->kernels, b->graph, op) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static status_t initial(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    const struct bench *b = ctx;
    (void)e;
    initial_parameter(&b->graph->parameters[parameter], parameter, 1, first, count, data);
    return ST_OK;
}

static status_t bench_open(struct bench *b, const struct setting *s, bool bf16, int threads, struct err *e) {
    struct model_config model = s->model;
    const struct kernels_config kernels = { .device = "cpu",
                                            .threads = threads,
                                            .precision = bf16 ? KERNELS_BF16 : KERNELS_FP32 };
    const bool images = model_context(&model) == 0;
    const struct model_data data =
        images ? (struct model_data){ .classes = CLASSES, .channels = CHANNELS, .height = SIDE, .width = SIDE }
               : (struct model_data){ .vocabulary = model_vocabulary(&model) };
    *b = (struct bench){ .setting = s, .context = model_context(&model), .vocabulary = data.vocabulary };
    TRY(kernels_open(&kernels, &b->kernels, e));
    TRY(model_resolve(&model, &data, e));
    TRY(model_build(&model, &data, s->batch, bf16 ? DTYPE_BF16 : DTYPE_F32, &b->graph, e));
    struct plan_layout layout = { .kind = PLAN_TRAIN,
                                  .optimizer = &optimizer_adamw,
                                  .lanes = 1,
                                  .micro_batches = 1,
                                  .bucket_bytes = 4 << 20,
                                  .workspace_bytes = workspace_bytes(b) };
    TRY(plan_build(b->graph, &layout, &b->plan, e));
    const struct plan *plan = b->plan;
    TRY(plan_verify(&plan, 1, e));
    TRY(arena_open(&b->arena, b->kernels, &plan, 1, e));
    TRY(execution_open(&b->x, b->kernels, &b->arena, &plan, 1, e));
    TRY(weights_fill(&b->x, plan, initial, b, e));
    b->x.load = load;
    b->x.load_ctx = b;
    b->x.decide.clip_norm = 1;
    const float targets = (float)(s->batch * (images ? 1 : b->context));
    TRY(step_control_set(&b->x.control, &(struct decision){ .scale = 1, .loss_gradient = 1 / targets }, e));
    const int64_t pixels = images ? (int64_t)s->batch * CHANNELS * SIDE * SIDE : 0;
    b->images = calloc((size_t)pixels + 1, sizeof *b->images);
    for (int64_t i = 0; i < pixels; i++)
        b->images[i] = (float)(i * 7919 % 1001) / 500 - 1;
    b->optimizer = (struct optimizer_config){
        .kind = &optimizer_adamw, .adamw = { .lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 }
    };
    b->x.optimizer = &b->optimizer;
    b->x.learning_rate = 3e-4;
    return ST_OK;
}

/* The products of a layer with one weight, forward and both backward ones, on the step's own memory. */
static status_t products_of(struct bench *b, const struct op *op, int use, struct err *e) {
    const struct kernels *k = b->kernels;
    const int parameter = b->graph->uses[use].parameter;
    const struct parameter *p = &b->graph->parameters[parameter];
    const void *w = execution_at(&b->x, plan_parameter_place(b->plan, parameter));
    void *x = execution_tensor(&b->x, b->plan, op->in[0], 0), *y = execution_tensor(&b->x, b->plan, op->out[0], 0);
    const bool t = op->attr.transposed;
    const struct linear_dims d = {
        .rows = (int64_t)b->setting->batch * b->context, .in = p->shape.dim[t], .out = p->shape.dim[!t], .transposed = t
    };
    TRY(k->linear_forward(k, y, NULL, x, w, NULL, &d, e));
    TRY(k->linear_backward_input(k, x, y, w, &d, false, e));
    return k->linear_backward_weight(k, execution_use(&b->x, b->plan, 0, use), x, y, &d, false,
                                     execution_workspace(&b->x, b->plan), e);
}

static status_t bound(struct bench *b, struct err *e) {
    for (int i = 0; i < b->graph->n_ops; i++) {
        const struct op *op = &b->graph->ops[i];
        const bool packed = op->kind == &op_linear_packed;
        if (op->kind != &op_linear && op->kind != &op_linear_gelu && !packed)
            continue;
        for (int s = 0; s < (packed ? OP_PARAMETERS : 1); s++)
            if (op->use[s] >= 0)
                TRY(products_of(b, op, op->use[s], e));
    }
    const struct instruction step = { .kind = INSTRUCTION_STEP, .buffer = b->plan->result, .end = b->plan->n_shards };
    return execute_step(&b->x, b->plan, &step, e);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Wall time, or with `cpu` the processor time of this process: what a busy machine still tells truly of one thread. */
static clockid_t clock_id = CLOCK_MONOTONIC;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(clock_id, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Milliseconds by kind of instruction or op, from the progress calls after each instruction. */
struct profile {
    struct bench *bench;
    const char *name[KINDS_MOST];
    double ms[KINDS_MOST];
    int n, at;
    int64_t last_ns;
};

static void note(struct profile *p, const char *name, double ms) {
    int i = 0;
    while (i < p->n && strcmp(p->name[i], name) != 0)
        i++;
    if (i == KINDS_MOST)
        return;
    if (i == p->n)
        p->name[p->n++] = name;
    p->ms[i] += ms;
}

static void profiled(void *ctx) {
    struct profile *p = ctx;
    const struct graph *g = p->bench->graph;
    const struct instruction *i = &p->bench->plan->queue[QUEUE_COMPUTE].items[p->at++];
    int64_t now = now_ns();
    const char *name = instruction_name(i->kind);
    if (i->kind == INSTRUCTION_FORWARD)
        name = g->ops[i->op].kind->name;
    if (i->kind == INSTRUCTION_BACKWARD_INPUT || i->kind == INSTRUCTION_BACKWARD_WEIGHT)
        name = g->ops[g->reverse[i->op].op].kind->name;
    note(p, name, (double)(now - p->last_ns) * 1e-6);
    p->last_ns = now;
}

static void print(const char *key, double *ms, int n) {
    qsort(ms, (size_t)n, sizeof *ms, by_value);
    printf(",\"%s_ms\":%.3f,\"%s_fastest_ms\":%.3f", key, ms[n / 2], key, ms[0]);
}

static status_t run(struct bench *b, const char *precision, int threads, int steps, struct err *e) {
    static double ms[STEPS_MOST], bound_ms[STEPS_MOST];
    struct profile p = { .bench = b };
    for (int i = -WARM_UP; i < steps; i++) {
        b->x.step = i + WARM_UP;
        const struct step_control *ignored;
        int64_t start = now_ns();
        if (i == 0) { /* one step in parts; its time is not counted */
            p.last_ns = start;
            b->x.progress = profiled;
            b->x.progress_ctx = &p;
            TRY(execute_now(&b->x, b->plan, &ignored, e));
            b->x.progress = NULL;
            start = now_ns();
        }
        TRY(execute_now(&b->x, b->plan, &ignored, e));
        int64_t middle = now_ns();
        if (i >= 0)
            ms[i] = (double)(middle - start) * 1e-6;
    }
    for (int i = -WARM_UP; b->context && i < steps; i++) {
        int64_t start = now_ns();
        TRY(bound(b, e));
        if (i >= 0)
            bound_ms[i] = (double)(now_ns() - start) * 1e-6;
    }
    const int samples = b->setting->batch * (b->context ? b->context : 1);
    printf("{\"model\":\"%s\",\"precision\":\"%s\",\"threads\":%d,\"parameters\":%lld,\"samples\":%d", b->setting->name,
           precision, threads, (long long)graph_parameter_elements(b->graph), samples);
    print("step", ms, steps);
    if (b->context)
        print("bound", bound_ms, steps);
    char numerics[KERNELS_NUMERICS_ID_BYTES];
    kernels_numerics_id(b->kernels, numerics, sizeof numerics);
    printf(",\"numerics\":\"%s\"", numerics);
    printf(",\"samples_per_second\":%.1f,\"parts_ms\":{", samples / ms[steps / 2] * 1e3);
    for (int i = 0; i < p.n; i++)
        printf("%s\"%s\":%.2f", i ? "," : "", p.name[i], p.ms[i]);
    printf("}}\n");
    return ST_OK;
}

int main(int argc, char **argv) {
    const struct setting *setting = NULL;
    for (size_t i = 0; i < sizeof SETTINGS / sizeof *SETTINGS; i++)
        if (argc > 2 && strcmp(argv[1], SETTINGS[i].name) == 0)
            setting = &SETTINGS[i];
    const char *precision = argc > 2 ? argv[2] : "";
    const bool bf16 = strcmp(precision, "bf16") == 0;
    int threads = argc > 3 ? atoi(argv[3]) : 2, steps = argc > 4 ? atoi(argv[4]) : 10;
    if (argc > 5 && strcmp(argv[5], "cpu") == 0)
        clock_id = CLOCK_PROCESS_CPUTIME_ID;
    if (!setting || (!bf16 && strcmp(precision, "fp32") != 0) || threads < 1 || steps < 1 || steps > STEPS_MOST) {
        fprintf(stderr, "usage: bench_train char|gpt2|llama|resnet18 fp32|bf16 [threads] [steps] [cpu]\n");
        return 2;
    }
    struct bench b;
    struct err e;
    if (bench_open(&b, setting, bf16, threads, &e) != ST_OK || run(&b, precision, threads, steps, &e) != ST_OK)
        die(&e);
    execution_close(&b.x);
    free(b.images);
    arena_close(&b.arena);
    plan_free(b.plan);
    graph_free(b.graph);
    kernels_close(b.kernels);
    return 0;
}
