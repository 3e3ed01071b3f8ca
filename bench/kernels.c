/* The time of every kernel of one training step, beside the machine's bound: arithmetic by a loop of fused
 * multiply-adds, memory by a triad over arrays that no private cache holds. The sum is a training step without an
 * engine around it. The arithmetic bound is fp32's in every precision: bf16 products may be above it.
 *
 *     bench_kernels [--threads N] [--isa best|plain|avx2|avx512] [--precision fp32|bf16|fp16]
 */
#include "kernels/kernels.h"
#include "base/clock.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model {
    const char *name;
    int64_t layers, width, heads, time, batch, vocabulary;
};

static const struct model MODELS[] = {
    { "char GPT 10.8M (6 layers, width 384, 6 heads, 12 x 256)", 6, 384, 6, 256, 12, 65 },
    { "GPT-2 124M (12 layers, width 768, 12 heads, 4 x 64)", 12, 768, 12, 64, 4, 50257 },
    { "GPT-2 124M's block (1 layer, 1 x 1024)", 1, 768, 12, 1024, 1, 65 },
};

/* Everything an op may be called with; the arrays are larger than any op needs. */
struct bench {
    const struct kernels *k;
    struct model m;
    struct linear_dims d;
    struct attention_dims attention;
    struct dropout dropout;
    element_t *a, *b, *pre, *w, *bias; /* inputs, left as they are but where an op works in place */
    element_t *y, *r;
    float *states; /* master, first and second moment */
    float *dw, *rows1, *rows2;
    double *sums;
    int32_t *tokens;
    void *workspace;
    int64_t rows, n;
};

enum { WIDE = 4 }; /* the widest activation of a block: 4 C */

static void check(status_t st, const struct err *e) {
    if (st != ST_OK) {
        fprintf(stderr, "bench_kernels: %s\n", e->msg);
        exit(1);
    }
}

static void *room(size_t bytes) {
    void *p;
    if (posix_memalign(&p, 1 << 21, bytes ? bytes : 1)) {
        fprintf(stderr, "bench_kernels: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

/* Filled by the team that reads it, so that pages are there and near. */
static float *filled(int64_t n, float value, float offset) {
    float *a = room((size_t)n * sizeof *a);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        a[i] = offset + value * (float)(i % 61 - 30) / 30;
    return a;
}

static element_t *filled_elements(const struct kernels *k, int64_t n, float value, float offset) {
    float *a = filled(n, value, offset);
    element_t *to = room((size_t)n * kernels_element_bytes(k));
    struct err e;
    check(k->convert(k, to, a, n, &e), &e);
    free(a);
    return to;
}

/* --- the ops, one function each -----------------------------------------------------------------------------------*/
typedef status_t (*op_fn)(struct bench *x, struct err *e);

static status_t linear_forward(struct bench *x, struct err *e) {
    return x->k->linear_forward(x->k, x->y, NULL, x->a, x->w, x->d.transposed ? NULL : x->bias, &x->d, e);
}
static status_t linear_backward_input(struct bench *x, struct err *e) {
    return x->k->linear_backward_input(x->k, x->y, x->b, x->w, &x->d, false, e);
}
static status_t linear_backward_weight(struct bench *x, struct err *e) {
    return x->k->linear_backward_weight(x->k, x->dw, x->a, x->b, &x->d, false, x->workspace, e);
}
static status_t bias_backward(struct bench *x, struct err *e) {
    return x->k->linear_backward_bias(x->k, x->rows1, x->b, NULL, &x->d, false, x->workspace, e);
}
static status_t gelu_bias_backward(struct bench *x, struct err *e) {
    return x->k->linear_backward_bias(x->k, x->rows1, x->b, x->pre, &x->d, false, x->workspace, e);
}
static status_t gelu_forward(struct bench *x, struct err *e) { return x->k->gelu_forward(x->k, x->y, x->a, x->n, e); }
static status_t gelu_erf_forward(struct bench *x, struct err *e) {
    return x->k->gelu_erf_forward(x->k, x->y, x->a, x->n, e);
}
static status_t gelu_erf_backward(struct bench *x, struct err *e) {
    return x->k->gelu_erf_backward(x->k, x->y, x->b, x->a, x->n, e);
}
static status_t layernorm_forward(struct bench *x, struct err *e) {
    return x->k->layernorm_forward(x->k, x->y, NULL, x->rows1, x->rows2, x->a, NULL, x->w, x->w, x->rows, x->m.width,
                                   1e-5f, e);
}
static status_t residual_layernorm_forward(struct bench *x, struct err *e) {
    return x->k->layernorm_forward(x->k, x->y, x->r, x->rows1, x->rows2, x->a, x->b, x->w, x->w, x->rows, x->m.width,
                                   1e-5f, e);
}
static status_t layernorm_backward(struct bench *x, struct err *e) {
    return x->k->layernorm_backward(x->k, x->y, x->dw, x->dw + x->m.width, x->a, x->b, x->r, x->rows1, x->rows2, x->w,
                                    x->rows, x->m.width, false, x->workspace, e);
}
static status_t attention_forward(struct bench *x, struct err *e) {
    return x->k->attention_forward(x->k, x->r, x->rows2, x->a, &x->attention, &x->dropout, x->workspace, e);
}
static status_t attention_backward(struct bench *x, struct err *e) {
    return x->k->attention_backward(x->k, x->y, x->b, x->a, x->r, x->rows2, &x->attention, &x->dropout, x->workspace,
                                    e);
}
static status_t rmsnorm_forward(struct bench *x, struct err *e) {
    return x->k->rmsnorm_forward(x->k, x->y, x->r, x->rows2, x->a, x->b, x->w, x->rows, x->m.width, 1e-5f, e);
}
static status_t rmsnorm_backward(struct bench *x, struct err *e) {
    return x->k->rmsnorm_backward(x->k, x->y, x->dw, x->a, x->b, x->r, x->rows2, x->w, x->rows, x->m.width, false,
                                  x->workspace, e);
}
static status_t swiglu_forward(struct bench *x, struct err *e) {
    return x->k->swiglu_forward(x->k, x->y, x->a, x->rows, 2 * x->m.width, e);
}
static status_t swiglu_backward(struct bench *x, struct err *e) {
    return x->k->swiglu_backward(x->k, x->y, x->b, x->a, x->rows, 2 * x->m.width, e);
}
static status_t rope(struct bench *x, struct err *e) {
    return x->k->rope(x->k, x->y, x->a, &x->attention, &(struct rope){ .theta = 10000 }, false, e);
}
static status_t dropout(struct bench *x, struct err *e) {
    const struct dropout d = { .probability = 0.1f };
    return x->k->dropout(x->k, x->y, x->a, x->m.batch, x->n / x->m.batch, &d, e);
}
static status_t add(struct bench *x, struct err *e) { return x->k->add(x->k, x->y, x->a, x->b, x->n, e); }
static status_t embedding_forward(struct bench *x, struct err *e) {
    return x->k->embedding_forward(x->k, x->y, x->tokens, x->w, x->w, x->m.batch, x->m.time, x->m.width,
                                   x->m.vocabulary, e);
}
static status_t embedding_backward(struct bench *x, struct err *e) {
    return x->k->embedding_backward(x->k, x->dw, x->r, x->tokens, x->b, x->m.batch, x->m.time, x->m.width,
                                    x->m.vocabulary, x->m.time, false, NULL, e);
}
static status_t cross_entropy(struct bench *x, struct err *e) {
    return x->k->cross_entropy(x->k, x->rows1, x->y, x->tokens, NULL, NULL, x->rows, x->m.vocabulary,
                               &(float){ 1.0f / (float)x->rows }, e);
}
static status_t sum_squares(struct bench *x, struct err *e) {
    return x->k->sum_squares(x->k, &(struct norm_span){ x->sums, x->dw, x->n }, 1, e);
}
static status_t adamw(struct bench *x, struct err *e) {
    const struct adamw o = { .learning_rate = &(double){ 1e-4 },
                             .update = &(struct update){ .number = 3, .gradient_scale = 1 },
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .epsilon = 1e-8,
                             .weight_decay = 0.1 };
    const struct span all = { .n = x->n,
                              .p = x->states,
                              .weight = x->k->precision == KERNELS_FP32 ? NULL : x->w,
                              .m = x->states + x->n,
                              .v = x->states + 2 * x->n,
                              .x = x->dw,
                              .decay = true };
    return x->k->adamw(x->k, &all, 1, &o, e);
}

/* --- measuring ----------------------------------------------------------------------------------------------------*/
struct bounds {
    double flops, bytes; /* per second */
};

enum { RUNS = 9 };

/* The fastest of RUNS runs, after one that is not counted: what the op takes when nothing else wants the processor.
 * Short ops are repeated to 2 ms. */
static double seconds_of(op_fn op, struct bench *x) {
    struct err e;
    double best = 0;
    check(op(x, &e), &e);
    int64_t begin = clock_mono_ns();
    check(op(x, &e), &e);
    const int repeats = 1 + (int)(2e6 / (double)(clock_mono_ns() - begin + 1));
    for (int i = 0; i < RUNS; i++) {
        begin = clock_mono_ns();
        for (int j = 0; j < repeats; j++)
            check(op(x, &e), &e);
        const double seconds = (double)(clock_mono_ns() - begin) * 1e-9 / repeats;
        best = i == 0 || seconds < best ? seconds : best;
    }
    return best;
}

struct total {
    double seconds, bound;
};

/* One line: an op, how often a step runs it, and what it does beside what the machine can. */
static void report(struct bench *x, const char *name, op_fn op, int64_t times, double flops, double bytes,
                   const struct bounds *most, struct total *sum) {
    const double seconds = seconds_of(op, x), bound = flops > 0 ? flops / most->flops : bytes / most->bytes;
    const double rate = (flops > 0 ? flops : bytes) / seconds * 1e-9;
    printf("  %-32s %4lld x %9.1f us  %8.2f ms  %7.1f %s  %5.0f %%\n", name, (long long)times, seconds * 1e6,
           seconds * (double)times * 1e3, rate, flops > 0 ? "GF/s" : "GB/s", 100 * bound / seconds);
    fflush(stdout);
    sum->seconds += seconds * (double)times;
    sum->bound += bound * (double)times;
}

typedef float lanes16 __attribute__((vector_size(64)));

/* 16 independent chains of 16-wide multiply-adds, so that neither latency nor memory bounds them. */
__attribute__((target_clones("avx512f", "arch=haswell", "default"))) static float multiply_adds(int64_t n) {
    lanes16 a[16];
    for (int i = 0; i < 16; i++)
        a[i] = (lanes16){ (float)i };
    const lanes16 x = a[0] + 0.999f, y = a[0] + 1e-3f;
    for (int64_t j = 0; j < n; j++)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            a[i] = a[i] * x + y;
    float sum = 0;
    for (int i = 0; i < 16; i++)
        sum += a[i][0];
    return sum;
}

static volatile float sink;

static struct bounds measure(int threads) {
    const int64_t n = 16 << 20, loops = 4000000;
    struct bounds most = { 0, 0 };
    float *a = filled(n, 1, 0), *b = filled(n, 1, 0), *c = filled(n, 1, 0);
    for (int run = 0; run < 5; run++) {
        int64_t begin = clock_mono_ns();
#pragma omp parallel num_threads(threads)
        sink = multiply_adds(loops);
        double rate = 2.0 * 16 * 16 * (double)loops * threads / ((double)(clock_mono_ns() - begin) * 1e-9);
        most.flops = rate > most.flops ? rate : most.flops;
        begin = clock_mono_ns();
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < n; i++)
            a[i] = b[i] + 0.5f * c[i];
        rate = 12.0 * (double)n / ((double)(clock_mono_ns() - begin) * 1e-9);
        most.bytes = rate > most.bytes ? rate : most.bytes;
    }
    free(a), free(b), free(c);
    return most;
}

static void linear(struct bench *x, const char *name, int64_t in, int64_t out, bool head, const struct bounds *most,
                   struct total *sum) {
    char line[64];
    x->d = (struct linear_dims){ .rows = x->rows, .in = in, .out = out, .transposed = head };
    const int64_t times = head ? 1 : x->m.layers;
    const double flops = 2.0 * (double)x->rows * (double)in * (double)out;
    snprintf(line, sizeof line, "%s forward", name);
    report(x, line, linear_forward, times, flops, 0, most, sum);
    snprintf(line, sizeof line, "%s backward input", name);
    report(x, line, linear_backward_input, times, flops, 0, most, sum);
    snprintf(line, sizeof line, "%s backward weight", name);
    report(x, line, linear_backward_weight, times, flops, 0, most, sum);
    if (head)
        return;
    const bool gelu = out == WIDE * x->m.width;
    snprintf(line, sizeof line, "%s backward %s", name, gelu ? "bias, gelu" : "bias");
    report(x, line, gelu ? gelu_bias_backward : bias_backward, times, 0,
           (gelu ? 3 : 1) * (double)kernels_element_bytes(x->k) * (double)(x->rows * out), most, sum);
}

static size_t workspace_bytes(const struct bench *x) {
    const struct linear_dims widest = { .rows = x->rows, .in = x->m.width, .out = WIDE * x->m.width };
    const size_t bytes[] = { x->k->linear_backward_bias_workspace(x->k, &widest),
                             x->k->attention_workspace(x->k, &x->attention),
                             x->k->layernorm_backward_workspace(x->k, x->rows, x->m.width) };
    size_t most = 0;
    for (int i = 0; i < 3; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most;
}

static void bench_init(struct bench *x, const struct kernels *k, const struct model *m, int64_t parameters) {
    const int64_t C = m->width, rows = m->batch * m->time, n = rows * C;
    const int64_t largest = rows * m->vocabulary > WIDE * n ? rows * m->vocabulary : WIDE * n;
    *x = (struct bench){ .k = k,
                         .m = *m,
                         .rows = rows,
                         .attention = { m->batch, m->time, m->heads, m->heads, C / m->heads, true },
                         .a = filled_elements(k, largest, 1, 0),
                         .b = filled_elements(k, largest, 1, 0),
                         .pre = filled_elements(k, WIDE * n, 0.01f, 3), /* gelu' is about 1: dy stays as it is */
                         .y = filled_elements(k, largest, 1, 0),
                         .r = filled_elements(k, WIDE * n, 1, 0),
                         .w = filled_elements(k, parameters, 0.1f, 0.1f),
                         .bias = filled_elements(k, WIDE * C, 1, 0),
                         .states = filled(3 * parameters, 0.1f, 0.1f), /* the second moment is not negative */
                         .dw = filled(parameters, 1e-3f, 0),
                         .rows1 = filled(m->vocabulary + rows + WIDE * C, 1, 0),
                         .rows2 = filled(rows * m->heads, 1, 0),
                         .sums = room((size_t)(parameters / KERNELS_CHUNK + 1) * sizeof(double)),
                         .tokens = room((size_t)rows * sizeof(int32_t)) };
    for (int64_t i = 0; i < rows; i++)
        x->tokens[i] = (int32_t)(i * 7919 % m->vocabulary);
    x->workspace = room(workspace_bytes(x));
}

static void bench_done(struct bench *x) {
    free(x->a), free(x->b), free(x->pre), free(x->y), free(x->r), free(x->w), free(x->dw), free(x->rows1);
    free(x->bias), free(x->states);
    free(x->rows2), free(x->sums), free(x->tokens), free(x->workspace);
}

static void run_model(const struct kernels *k, const struct model *m, const struct bounds *most) {
    const int64_t C = m->width, parameters = m->layers * 12 * C * C + m->vocabulary * C + m->time * C;
    struct bench x;
    struct total sum = { 0, 0 }, beside = { 0, 0 };
    bench_init(&x, k, m, parameters);
    printf("%s\n", m->name);
    linear(&x, "qkv", C, 3 * C, false, most, &sum);
    linear(&x, "attention projection", C, C, false, most, &sum);
    linear(&x, "fc", C, WIDE * C, false, most, &sum);
    linear(&x, "mlp projection", WIDE * C, C, false, most, &sum);
    linear(&x, "head", C, m->vocabulary, true, most, &sum);
    x.n = x.rows * C;
    const double element = (double)kernels_element_bytes(k), matrix = (double)x.n * element; /* of one (B,T,C) tensor */
    /* Causal: half of the scores. Two products forward, five backward. */
    const double score = 2.0 * 0.5 * (double)(m->batch * m->time * m->time * C);
    report(&x, "attention forward", attention_forward, m->layers, 2 * score, 0, most, &sum);
    report(&x, "attention backward", attention_backward, m->layers, 5 * score, 0, most, &sum);
    report(&x, "layer norm forward", layernorm_forward, m->layers + 1, 0, 2 * matrix, most, &sum);
    report(&x, "residual + layer norm forward", residual_layernorm_forward, m->layers, 0, 4 * matrix, most, &sum);
    report(&x, "layer norm backward + addend", layernorm_backward, 2 * m->layers + 1, 0, 4 * matrix, most, &sum);
    report(&x, "add", add, m->layers, 0, 3 * matrix, most, &sum);
    report(&x, "embedding forward", embedding_forward, 1, 0, 3 * matrix, most, &sum);
    report(&x, "embedding backward", embedding_backward, 1, 0,
           matrix + 4.0 * (double)x.n * 4 + 4.0 * (double)((m->vocabulary + m->time) * C), most, &sum);
    report(&x, "cross entropy with gradient", cross_entropy, 1, 0, 2 * element * (double)(x.rows * m->vocabulary), most,
           &sum);
    report(&x, "dropout (not in the sum)", dropout, 0, 0, 2 * matrix, most, &beside);
    report(&x, "residual + RMS norm (not in the sum)", rmsnorm_forward, 0, 0, 4 * matrix, most, &beside);
    report(&x, "RMS norm backward + addend (nor)", rmsnorm_backward, 0, 0, 4 * matrix, most, &beside);
    report(&x, "rope (not in the sum)", rope, 0, 0, 6 * matrix, most, &beside);
    report(&x, "swiglu forward (not in the sum)", swiglu_forward, 0, 0, 6 * matrix, most, &beside);
    report(&x, "swiglu backward (not in the sum)", swiglu_backward, 0, 0, 10 * matrix, most, &beside);
    x.n = WIDE * x.rows * C;
    report(&x, "gelu forward", gelu_forward, m->layers, 0, 2 * WIDE * matrix, most, &sum);
    report(&x, "gelu by erf forward (not in the sum)", gelu_erf_forward, 0, 0, 2 * WIDE * matrix, most, &beside);
    report(&x, "gelu by erf backward (nor)", gelu_erf_backward, 0, 0, 3 * WIDE * matrix, most, &beside);
    x.n = parameters;
    report(&x, "sum of squares", sum_squares, 1, 0, 4.0 * (double)parameters, most, &sum);
    report(&x, "adamw", adamw, 1, 0, (28.0 + (element == 4 ? 0 : element)) * (double)parameters, most, &sum);
    printf("  a step of these: %.1f ms, %.0f tokens/s; the bound: %.1f ms\n", sum.seconds * 1e3,
           (double)x.rows / sum.seconds, sum.bound * 1e3);
    bench_done(&x);
}

static int precision_parse(const char *text) {
    static const char *const names[] = { "fp32", "bf16", "fp16" };
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return -1;
}

static int isa_parse(const char *text) {
    static const char *const names[] = { "best", "plain", "avx2", "avx512" };
    for (int i = 0; i < 4; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return -1;
}

int main(int argc, char **argv) {
    struct kernels_config config = { .device = "cpu", .threads = omp_get_max_threads() };
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0)
            config.threads = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--isa") == 0 && isa_parse(argv[i + 1]) >= 0)
            config.isa = (enum kernels_isa)isa_parse(argv[i + 1]);
        else if (strcmp(argv[i], "--precision") == 0 && precision_parse(argv[i + 1]) >= 0)
            config.precision = (enum kernels_precision)precision_parse(argv[i + 1]);
        else
            argc = 0;
    }
    if (argc % 2 == 0) {
        fprintf(stderr,
                "usage: bench_kernels [--threads N] [--isa best|plain|avx2|avx512] [--precision fp32|bf16|fp16]\n");
        return 2;
    }
    CLEANUP(kernels_closep) struct kernels *k = NULL;
    struct err e;
    check(kernels_open(&config, &k, &e), &e);
    omp_set_num_threads(config.threads);
    char id[KERNELS_NUMERICS_ID_BYTES];
    kernels_numerics_id(k, id, sizeof id);
    const struct bounds most = measure(config.threads);
    printf("%s; %d threads; multiply-adds %.0f GF/s, triad %.1f GB/s\n", id, config.threads, most.flops * 1e-9,
           most.bytes * 1e-9);
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++)
        run_model(k, &MODELS[i], &most);
    return 0;
}
