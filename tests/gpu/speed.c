/* gpu_speed [DEVICE [ROWS]]: what the kernels of GPT-2's steps reach, in bf16, with ROWS tokens (65536) of 1024 a
 * sample: arrays larger than the device's cache. Each is called twenty times between two marks of the device's clock;
 * the fastest of three such runs counts. Numbers are normally distributed, as peer.py's are: a product of zeros or of
 * like numbers takes less power, and is up to a tenth faster. DEVICE is cuda; cpu with few rows tries the program
 * itself.
 *
 * First come the device's own ceilings: a product of large squares, and a copy. Then each kernel; then `floor NAME
 * SHARE` for products, attention, norms, the loss and the optimizer: what they would take at those ceilings, of what
 * they took. What was chosen for the products is printed last. */
#include "kernels/kernels.h"
#include "kernels/normal.h"
#include "kernels/philox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 3, TIME = 1024, HEAD = 64, VOCABULARY = 50304, ARRAYS_MAX = 16, DRAWN = 1 << 20, NO_DEVICE = 77 };
enum group { PRODUCTS, ATTENTION, NORMS, LOSS, OPTIMIZER, GROUPS };

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        struct err e_ = { "" }, *e = &e_;                                                                              \
        if ((call) != ST_OK) {                                                                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, e_.msg);                                                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The fastest of RUNS runs of b->times calls; ret = seconds a call, by the device's clock. */
#define FASTEST(b, ret, call)                                                                                          \
    do {                                                                                                               \
        (ret) = 1e30;                                                                                                  \
        for (int run_ = 0; run_ <= RUNS; run_++) {                                                                     \
            MUST((b)->k->timer_record((b)->k, (b)->timer[0], e));                                                      \
            for (int i_ = 0; i_ < (b)->times; i_++)                                                                    \
                MUST(call);                                                                                            \
            MUST((b)->k->timer_record((b)->k, (b)->timer[1], e));                                                      \
            const double took_ = between(b) / (b)->times;                                                              \
            if (run_ > 0 && took_ < (ret)) /* the first one chooses and compiles */                                    \
                (ret) = took_;                                                                                         \
        }                                                                                                              \
    } while (0)

struct bench {
    const struct kernels *k;
    int64_t rows;
    int times, n;
    void *timer[2], *arrays[ARRAYS_MAX];
    float *drawn;                  /* DRAWN normal numbers, on the host */
    double flops_most, bytes_most; /* a second: the ceilings */
    double floor[GROUPS], took[GROUPS];
};

/* Seconds between the timers. */
static double between(const struct bench *b) {
    int64_t ns;
    MUST(b->k->finish(b->k, e));
    MUST(b->k->timer_between(b->k, b->timer[0], b->timer[1], &ns, e));
    return (double)ns * 1e-9;
}

static void *array(struct bench *b, size_t bytes) {
    void *p = NULL;
    MUST(b->k->memory_new(b->k, bytes, &p, e));
    return b->arrays[b->n++] = p;
}

/* Normal numbers: those that were drawn, and copies of what is there already until the array is full. */
static void *floats(struct bench *b, int64_t n) {
    const struct kernels *k = b->k->fp32;
    char *p = array(b, (size_t)n * sizeof(float));
    int64_t done = n < DRAWN ? n : DRAWN;
    MUST(b->k->upload(b->k, p, b->drawn, (size_t)done * sizeof(float), e));
    for (int64_t more; done < n; done += more) {
        more = done < n - done ? done : n - done;
        MUST(k->copy(k, p + (size_t)done * sizeof(float), p, more, e));
    }
    MUST(b->k->finish(b->k, e));
    return p;
}

static void *elements(struct bench *b, int64_t n) {
    const int64_t first = n < DRAWN ? n : DRAWN;
    uint16_t *p = array(b, (size_t)n * sizeof *p);
    float *from = floats(b, first);
    MUST(b->k->convert(b->k, p, from, first, e));
    for (int64_t done = first, more; done < n; done += more) {
        more = done < n - done ? done : n - done;
        MUST(b->k->copy(b->k, p + done, p, more, e));
    }
    MUST(b->k->finish(b->k, e));
    b->k->memory_free(b->k, b->arrays[--b->n]);
    return p;
}

static void draw(struct bench *b) {
    if (!(b->drawn = malloc(DRAWN * sizeof *b->drawn)))
        exit(1);
    for (uint32_t i = 0; i < DRAWN; i += 2) {
        uint32_t random[4];
        philox4x32_10((const uint32_t[4]){ i }, 1, random);
        normal2(random, b->drawn + i);
    }
}

static void free_all(struct bench *b) {
    while (b->n)
        b->k->memory_free(b->k, b->arrays[--b->n]);
}

static void tell_flops(struct bench *b, enum group g, const char *what, double flops, double seconds) {
    printf("%-44s %9.3f ms %8.1f TFLOP/s\n", what, seconds * 1e3, flops / seconds / 1e12);
    b->floor[g] += flops / b->flops_most;
    b->took[g] += seconds;
}

static void tell_bytes(struct bench *b, enum group g, const char *what, double bytes, double seconds) {
    printf("%-44s %9.3f ms %8.0f GB/s\n", what, seconds * 1e3, bytes / seconds / 1e9);
    b->floor[g] += bytes / b->bytes_most;
    b->took[g] += seconds;
}

static void ceilings(struct bench *b, int64_t side, int64_t n) {
    const struct linear_dims d = { .rows = side, .in = side, .out = side };
    const struct kernels *k = b->k;
    void *x = elements(b, side * side), *w = elements(b, side * side), *y = elements(b, side * side);
    double s;
    FASTEST(b, s, k->linear_forward(k, y, NULL, x, w, NULL, &d, e));
    b->flops_most = 2.0 * (double)side * (double)side * (double)side / s;
    printf("ceiling: a product of %ld squared by as much %9.1f TFLOP/s\n", (long)side, b->flops_most / 1e12);
    free_all(b);
    void *from = elements(b, n), *to = elements(b, n);
    FASTEST(b, s, k->copy(k, to, from, n, e));
    b->bytes_most = 4.0 * (double)n / s;
    printf("ceiling: a copy of %.2f GB, read and written %9.0f GB/s\n", 2e-9 * (double)n, b->bytes_most / 1e9);
    free_all(b);
}

static void products(struct bench *b, const char *model, int64_t in, int64_t out, bool gelu) {
    const struct linear_dims d = { .rows = b->rows, .in = in, .out = out };
    const double flops = 2.0 * (double)b->rows * (double)in * (double)out;
    const struct kernels *k = b->k;
    void *x = elements(b, b->rows * in), *w = elements(b, in * out), *bias = elements(b, out);
    void *y = elements(b, b->rows * out), *pre = gelu ? elements(b, b->rows * out) : NULL, *dw = floats(b, in * out);
    void *workspace = array(b, k->linear_backward_weight_workspace(k, &d) + 256);
    char what[80];
    double s;
    FASTEST(b, s, k->linear_forward(k, y, pre, x, w, bias, &d, e));
    snprintf(what, sizeof what, "%s %ld -> %ld%s", model, (long)in, (long)out, gelu ? ", GELU" : "");
    tell_flops(b, PRODUCTS, what, flops, s);
    FASTEST(b, s, k->linear_backward_input(k, x, y, w, &d, false, e));
    snprintf(what, sizeof what, "%s %ld -> %ld, of the input", model, (long)in, (long)out);
    tell_flops(b, PRODUCTS, what, flops, s);
    FASTEST(b, s, k->linear_backward_weight(k, dw, x, y, &d, false, workspace, e));
    snprintf(what, sizeof what, "%s %ld -> %ld, of the weight", model, (long)in, (long)out);
    tell_flops(b, PRODUCTS, what, flops, s);
    free_all(b);
}

static void attention(struct bench *b, int64_t width) {
    const int64_t time = b->rows < TIME ? b->rows : TIME;
    const struct attention_dims d = { b->rows / time, time, width / HEAD, width / HEAD, HEAD, true, false };
    const double flops = 2.0 * (double)b->rows * (double)time * (double)width; /* of causal products, forward */
    const struct dropout none = { .probability = 0 };
    const struct kernels *k = b->k;
    void *qkv = elements(b, 3 * b->rows * width), *out = elements(b, b->rows * width),
         *lse = floats(b, b->rows * d.heads);
    void *dqkv = elements(b, 3 * b->rows * width), *dout = elements(b, b->rows * width);
    void *workspace = array(b, k->attention_workspace(k, &d) + 256);
    double s;
    FASTEST(b, s, k->attention_forward(k, out, lse, qkv, &d, &none, workspace, e));
    tell_flops(b, ATTENTION, "causal attention, head 64", flops, s);
    FASTEST(b, s, k->attention_backward(k, dqkv, dout, qkv, out, lse, &d, &none, workspace, e));
    tell_flops(b, ATTENTION, "causal attention, head 64, backward", 2.5 * flops, s);
    free_all(b);
}

static void norms(struct bench *b, int64_t width) {
    const struct kernels *k = b->k;
    const double bytes = 2.0 * (double)b->rows * (double)width;
    void *x = elements(b, b->rows * width), *branch = elements(b, b->rows * width), *y = elements(b, b->rows * width);
    void *gamma = elements(b, width), *beta = elements(b, width), *mean = floats(b, b->rows),
         *rstd = floats(b, b->rows);
    void *dgamma = floats(b, width), *dbeta = floats(b, width);
    void *workspace = array(b, k->layernorm_backward_workspace(k, b->rows, width) + 256);
    double s;
    FASTEST(b, s, k->layernorm_forward(k, y, x, mean, rstd, x, branch, gamma, beta, b->rows, width, 1e-5f, e));
    tell_bytes(b, NORMS, "residual and layer norm", 4 * bytes, s);
    FASTEST(b, s,
            k->layernorm_backward(k, y, dgamma, dbeta, y, branch, x, mean, rstd, gamma, b->rows, width, false,
                                  workspace, e));
    tell_bytes(b, NORMS, "residual and layer norm, backward", 4 * bytes, s);
    free_all(b);
}

static void loss_and_step(struct bench *b, int64_t parameters) {
    const struct kernels *k = b->k;
    const struct {
        double learning_rate;
        struct update update;
        float scale;
    } now = { 1e-3, { .number = 1, .gradient_scale = 1 }, 1e-3f };
    char *there = NULL;
    MUST(k->memory_new(k, sizeof now, (void **)&there, e));
    MUST(k->upload(k, there, &now, sizeof now, e));
    const struct adamw o = { .learning_rate = (const double *)(const void *)there,
                             .update = (const struct update *)(const void *)(there + sizeof(double)),
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .epsilon = 1e-8,
                             .weight_decay = 0.1 };
    const float *scale = (const float *)(const void *)(there + sizeof(double) + sizeof(struct update));
    const int64_t rows = b->rows;
    void *logits = elements(b, rows * VOCABULARY), *losses = floats(b, rows), *targets = NULL;
    void *p = floats(b, parameters), *weight = elements(b, parameters), *m = floats(b, parameters);
    void *v = floats(b, parameters), *g = floats(b, parameters);
    int32_t *host = calloc((size_t)rows, sizeof *host);
    double s;
    MUST(k->memory_new(k, (size_t)rows * sizeof *host, &targets, e));
    MUST(k->upload(k, targets, host, (size_t)rows * sizeof *host, e));
    MUST(k->finish(k, e));
    FASTEST(b, s, k->cross_entropy(k, losses, logits, targets, NULL, NULL, rows, VOCABULARY, scale, e));
    tell_bytes(b, LOSS, "cross-entropy and its gradient, in place", 4.0 * (double)rows * VOCABULARY, s);
    const struct span all = { .n = parameters, .p = p, .weight = weight, .m = m, .v = v, .x = g, .decay = true };
    FASTEST(b, s, k->adamw(k, &all, 1, &o, e));
    tell_bytes(b, OPTIMIZER, "AdamW with master weights", 30.0 * (double)parameters, s);
    k->memory_free(k, there);
    k->memory_free(k, targets);
    free(host);
    free_all(b);
}

static void tell_floors(const struct bench *b) {
    static const char *const NAME[] = { "products", "attention", "norms", "loss", "optimizer" };
    for (int g = 0; g < GROUPS; g++)
        printf("floor %s %.2f\n", NAME[g], b->floor[g] / b->took[g]);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int64_t width;
    } MODELS[] = { { "124M", 768 }, { "350M", 1024 }, { "1558M", 1600 } };
    const char *device = argc > 1 ? argv[1] : "cuda";
    const bool cpu = strcmp(device, "cpu") == 0;
    struct kernels *k = NULL;
    struct err why;
    if (kernels_open(
            &(struct kernels_config){ .device = device, .threads = 1, .precision = KERNELS_BF16, .fast = true }, &k,
            &why) != ST_OK)
        return fprintf(stderr, "%s\n", why.msg), NO_DEVICE;
    struct bench b = { .k = k, .rows = argc > 2 ? atoll(argv[2]) : 65536, .times = cpu ? 1 : 20 };
    for (int i = 0; i < 2; i++)
        MUST(k->timer_new(k, &b.timer[i], e));
    draw(&b);
    char id[KERNELS_NUMERICS_ID_BYTES], *record = NULL;
    kernels_numerics_id(k, id, sizeof id);
    printf("%s\n", id);
    ceilings(&b, cpu ? 128 : 8192, cpu ? 1 << 16 : 1 << 30);
    for (int i = 0; i < (cpu ? 1 : 3); i++) {
        const int64_t C = MODELS[i].width;
        products(&b, MODELS[i].name, C, 3 * C, false);
        products(&b, MODELS[i].name, C, C, false);
        products(&b, MODELS[i].name, C, 4 * C, true);
        products(&b, MODELS[i].name, 4 * C, C, false);
    }
    attention(&b, 768);
    norms(&b, 768);
    loss_and_step(&b, cpu ? 1 << 16 : 124475904);
    tell_floors(&b);
    record = k->tuning_cache(k);
    printf("%s", record);
    free(record);
    free(b.drawn);
    for (int i = 0; i < 2; i++)
        k->timer_free(k, b.timer[i]);
    kernels_close(k);
    return 0;
}
