/* One optimizer step of two GPTs on this machine, and beside it, in the same process, what its matrix products and the
 * optimizer alone would take: the same linear products with no bias, no GELU and nothing between them, and one AdamW
 * pass.
 *
 *     bench_train char|gpt2 [threads] [steps] [cpu]
 *
 * Prints one JSON object: milliseconds of the median and the fastest step, of the bound, and by kind of op. */
#include "executor/engine/graph/op.h"
#include "executor/engine/model/gpt.h"
#include "executor/engine/plan/verify.h"
#include "executor/engine/run/execute.h"
#include "executor/engine/run/initial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 3, STEPS_MOST = 1000, KINDS_MOST = 16 };

struct setting {
    const char *name;
    struct gpt_shape shape;
    int batch;
};

static const struct setting SETTINGS[] = {
    { "char", { .layers = 6, .heads = 6, .width = 384, .context = 256, .vocabulary = 65 }, 12 },
    { "gpt2", { .layers = 12, .heads = 12, .width = 768, .context = 64, .vocabulary = 50257 }, 4 },
};

struct bench {
    const struct setting *setting;
    struct graph *graph;
    struct plan *plan;
    struct kernels *kernels;
    struct arena arena;
    struct execution x;
};

static void die(const struct err *e) {
    fprintf(stderr, "bench_train: %s\n", e->msg);
    exit(1);
}

static status_t load(void *ctx, int k, int32_t *tokens, int32_t *targets, struct err *e) {
    (void)k, (void)e;
    const struct bench *b = ctx;
    uint32_t state = (uint32_t)b->x.step + 1;
    for (int i = 0; i < b->setting->batch * b->setting->shape.context; i++) {
        tokens[i] = (int32_t)((state = state * 1664525 + 1013904223) >> 8) % b->setting->shape.vocabulary;
        targets[i] = (int32_t)((state = state * 1664525 + 1013904223) >> 8) % b->setting->shape.vocabulary;
    }
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

static status_t bench_open(struct bench *b, const struct setting *s, int threads, struct err *e) {
    *b = (struct bench){ .setting = s };
    TRY(kernels_open(&(struct kernels_config){ .device = "cpu", .threads = threads }, &b->kernels, e));
    TRY(gpt_build(&s->shape, s->batch, &b->graph, e));
    struct plan_layout layout = { .kind = PLAN_TRAIN,
                                  .world_size = 1,
                                  .lanes = 1,
                                  .micro_batches = 1,
                                  .bucket_bytes = 4 << 20,
                                  .workspace_bytes = workspace_bytes(b) };
    TRY(plan_build(b->graph, &layout, &b->plan, e));
    const struct plan *plan = b->plan;
    TRY(plan_verify(&plan, 1, e));
    TRY(arena_open(&b->arena, &plan, 1, e));
    execution_attach(&b->x, &b->arena, plan);
    for (int i = 0; i < b->graph->n_parameters; i++)
        initial_parameter(&b->graph->parameters[i], i, 1, b->x.parameters + plan->parameter_begin[i]);
    b->x.kernels = b->kernels;
    b->x.record = calloc(1, step_record_bytes(1));
    b->x.load = load;
    b->x.load_ctx = b;
    b->x.clip_norm = 1;
    b->x.loss_scale = 1.0f / (float)(s->batch * s->shape.context);
    b->x.adamw = (struct adamw){
        .learning_rate = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1
    };
    return ST_OK;
}

/* The products of one step, forward and both backward ones, on the same memory. */
static status_t products(struct bench *b, struct err *e) {
    const struct kernels *k = b->kernels;
    for (int i = 0; i < b->graph->n_ops; i++) {
        const struct op *op = &b->graph->ops[i];
        if (op->kind != &op_linear && op->kind != &op_linear_gelu)
            continue;
        const struct parameter *p = &b->graph->parameters[b->graph->slots[op->slot[0]].parameter];
        const float *w = b->x.parameters + b->plan->parameter_begin[b->graph->slots[op->slot[0]].parameter];
        float *x = execution_tensor(&b->x, b->plan, op->in[0]), *y = execution_tensor(&b->x, b->plan, op->out[0]);
        bool t = op->attr.transposed;
        struct linear_dims d = { .rows = (int64_t)b->setting->batch * b->setting->shape.context,
                                 .in = p->shape.dim[t],
                                 .out = p->shape.dim[!t],
                                 .transposed = t };
        TRY(k->linear_forward(k, y, NULL, x, w, NULL, &d, e));
        TRY(k->linear_backward_input(k, x, y, w, &d, false, e));
        TRY(k->linear_backward_weight(k, execution_slot(&b->x, b->plan, 0, op->slot[0]), x, y, &d, false,
                                      b->x.workspace, e));
    }
    return ST_OK;
}

static status_t bound(struct bench *b, struct err *e) {
    TRY(products(b, e));
    return b->kernels->adamw(b->kernels, b->x.parameters, b->x.moment1, b->x.moment2, b->x.gradients,
                             b->plan->parameter_elements, &b->x.adamw, e);
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
    const struct instruction *i = &p->bench->plan->compute.items[p->at++];
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

static status_t run(struct bench *b, int threads, int steps, struct err *e) {
    static double ms[STEPS_MOST], bound_ms[STEPS_MOST];
    struct profile p = { .bench = b };
    for (int i = -WARM_UP; i < steps; i++) {
        b->x.step = i + WARM_UP;
        b->x.adamw.updates = b->x.step + 1;
        int64_t start = now_ns();
        if (i == 0) { /* one step in parts; its time is not counted */
            p.last_ns = start;
            b->x.progress = profiled;
            b->x.progress_ctx = &p;
            TRY(execute(&b->x, b->plan, e));
            b->x.progress = NULL;
            start = now_ns();
        }
        TRY(execute(&b->x, b->plan, e));
        int64_t middle = now_ns();
        if (i >= 0)
            ms[i] = (double)(middle - start) * 1e-6;
    }
    for (int i = -WARM_UP; i < steps; i++) {
        int64_t start = now_ns();
        TRY(bound(b, e));
        if (i >= 0)
            bound_ms[i] = (double)(now_ns() - start) * 1e-6;
    }
    int tokens = b->setting->batch * b->setting->shape.context;
    printf("{\"model\":\"%s\",\"threads\":%d,\"parameters\":%lld,\"tokens\":%d", b->setting->name, threads,
           (long long)graph_parameter_elements(b->graph), tokens);
    print("step", ms, steps);
    print("bound", bound_ms, steps);
    printf(",\"tokens_per_second\":%.1f,\"parts_ms\":{", tokens / ms[steps / 2] * 1e3);
    for (int i = 0; i < p.n; i++)
        printf("%s\"%s\":%.2f", i ? "," : "", p.name[i], p.ms[i]);
    printf("}}\n");
    return ST_OK;
}

int main(int argc, char **argv) {
    const struct setting *setting = NULL;
    for (size_t i = 0; i < sizeof SETTINGS / sizeof *SETTINGS; i++)
        if (argc > 1 && strcmp(argv[1], SETTINGS[i].name) == 0)
            setting = &SETTINGS[i];
    int threads = argc > 2 ? atoi(argv[2]) : 2, steps = argc > 3 ? atoi(argv[3]) : 10;
    if (argc > 4 && strcmp(argv[4], "cpu") == 0)
        clock_id = CLOCK_PROCESS_CPUTIME_ID;
    if (!setting || threads < 1 || steps < 1 || steps > STEPS_MOST) {
        fprintf(stderr, "usage: bench_train char|gpt2 [threads] [steps] [cpu]\n");
        return 2;
    }
    struct bench b;
    struct err e;
    if (bench_open(&b, setting, threads, &e) != ST_OK || run(&b, threads, steps, &e) != ST_OK)
        die(&e);
    free(b.x.record);
    arena_close(&b.arena);
    plan_free(b.plan);
    graph_free(b.graph);
    kernels_close(b.kernels);
    return 0;
}
