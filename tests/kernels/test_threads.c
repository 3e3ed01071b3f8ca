/* The same bits for 1, 2 and 4 threads, op by op, at the shapes of three GPTs and at odd shapes, for every instruction
 * set and every precision. The same values, up to rounding, on every instruction set and in every precision.
 * test_products.c tests matrix products. */
#include "tests/kernels/tensor.h"
#include "tests/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct shape {
    int64_t batch, time, width, heads, kv_heads, vocabulary;
    bool plain_too; /* small enough for the plain path */
};

/* A build with a sanitizer skips the largest shapes, and in 16 bits tests only the odd widths. */
static bool is_too_slow(const struct shape *s, enum kernels_precision p) {
    return SANITIZED && (!s->plain_too || (p != KERNELS_FP32 && s->width % 8 == 0));
}

static const struct shape SHAPES[] = {
    { 2, 64, 128, 4, 2, 65, true },      /* nanoGPT 4 x 128 */
    { 12, 256, 384, 6, 6, 65, false },   /* 6 x 384 */
    { 1, 64, 768, 12, 12, 5003, false }, /* GPT-2 124M, one sample of its four, a tenth of its tokens */
    { 3, 67, 66, 3, 1, 31, true },       /* no size divides another */
    { 1, 1, 2, 1, 1, 1, true },          { 1, 513, 80, 1, 1, 1000, true },
};

/* The outputs of all ops at one shape, in fp32, one after another. */
struct results {
    float *data;
    int64_t used, capacity;
};

static float *take(struct results *r, int64_t n) {
    assert_true(r->used + n <= r->capacity);
    r->used += n;
    return r->data + r->used - n;
}

static void keep(struct results *r, const struct kernels *k, const element_t *a, int64_t n) {
    OK(k->convert_to_fp32(k, take(r, n), a, n, e));
}

/* The table of a run, and the precision to which its inputs were rounded. */
struct run {
    const struct kernels *k;
    enum kernels_precision inputs;
    const struct shape *s;
    struct results *r;
};

static element_t *input(const struct run *x, int64_t n, uint64_t seed, float scale) {
    CLEANUP(freep) float *a = rounded_random(x->inputs, n, seed, scale);
    return elements_of(x->k, a, n);
}

/* Multiples of 1/64 below 1: every precision holds the sum of two of them exactly, so no rounding happens. */
static element_t *coarse(const struct run *x, int64_t n, uint64_t seed) {
    CLEANUP(freep) float *a = tensor_random(n, seed, 1);
    for (int64_t i = 0; i < n; i++)
        a[i] = floorf(a[i] * 64) / 64;
    return elements_of(x->k, a, n);
}

#define INPUT(name, n, seed, scale) CLEANUP(freep) element_t *name = input(x, n, seed, scale)
#define OUTPUT(name, n)             CLEANUP(freep) element_t *name = elements_new(x->k, n)

static const int64_t NINTH = 9;
static const struct dropout DROPOUT = { .probability = 0.2f,
                                        .key = { .seed = 5, .step = &NINTH, .op = 2 },
                                        .first_sample = 3 };

static void run_norms(const struct run *x) {
    const struct kernels *k = x->k;
    const int64_t rows = x->s->batch * x->s->time, C = x->s->width, n = rows * C;
    CLEANUP(freep) element_t *a = coarse(x, n, 1), *branch = coarse(x, n, 2);
    INPUT(gamma, C, 3, 1);
    INPUT(dy, n, 4, 1);
    OUTPUT(y, n);
    OUTPUT(sum, n);
    CLEANUP(freep) void *workspace = malloc(k->layernorm_backward_workspace(k, rows, C));
    float *mean = take(x->r, rows), *rstd = take(x->r, rows), *dgamma = take(x->r, C), *dbeta = take(x->r, C);
    OK(k->layernorm_forward(k, y, sum, mean, rstd, a, branch, gamma, gamma, rows, C, 0.1f, e));
    keep(x->r, k, y, n);
    keep(x->r, k, sum, n);
    OK(k->layernorm_backward(k, y, dgamma, dbeta, dy, branch, sum, mean, rstd, gamma, rows, C, false, workspace, e));
    keep(x->r, k, y, n);
    rstd = take(x->r, rows), dgamma = take(x->r, C);
    OK(k->rmsnorm_forward(k, y, sum, rstd, a, branch, gamma, rows, C, 0.1f, e));
    keep(x->r, k, y, n);
    OK(k->rmsnorm_backward(k, y, dgamma, dy, branch, sum, rstd, gamma, rows, C, false, workspace, e));
    keep(x->r, k, y, n);
}

static void run_rows(const struct run *x) {
    const struct kernels *k = x->k;
    const int64_t rows = x->s->batch * x->s->time, C = x->s->width, n = rows * C, V = x->s->vocabulary;
    INPUT(dy, n, 4, 1);
    INPUT(pre, n, 5, 3);
    INPUT(logits, rows * V, 6, 5);
    CLEANUP(freep) int32_t *targets = tokens_random(rows, 7, (int32_t)V);
    const struct linear_dims d = { .rows = rows, .in = 1, .out = C };
    CLEANUP(freep) void *sums = malloc(k->linear_backward_bias_workspace(k, &d));
    OK(k->linear_backward_bias(k, take(x->r, C), dy, pre, &d, false, sums, e));
    keep(x->r, k, dy, n);
    OK(k->cross_entropy(k, take(x->r, rows), logits, targets, NULL, NULL, rows, V, &(float){ 8 }, e));
    keep(x->r, k, logits, rows * V);
}

static void run_attention(const struct run *x, bool causal) {
    const struct kernels *k = x->k;
    const struct shape *s = x->s;
    const struct attention_dims d = { s->batch, s->time, s->heads, s->kv_heads, s->width / s->heads, causal, true };
    const struct rope rope = { .theta = 10000 };
    const int64_t n = s->batch * s->time * s->width, packed = n / s->heads * (s->heads + 2 * s->kv_heads);
    INPUT(qkv, packed, 11, 1);
    INPUT(dout, n, 12, 1);
    OUTPUT(out, n);
    OUTPUT(dqkv, packed);
    CLEANUP(freep) void *workspace = malloc(k->attention_workspace(k, &d));
    float *lse = take(x->r, s->batch * s->heads * s->time);
    OK(k->attention_forward(k, out, lse, qkv, &d, &DROPOUT, workspace, e));
    keep(x->r, k, out, n);
    OK(k->attention_backward(k, dqkv, dout, qkv, out, lse, &d, &DROPOUT, workspace, e));
    keep(x->r, k, dqkv, packed);
    OK(k->rope(k, dqkv, qkv, &d, &rope, true, e));
    keep(x->r, k, dqkv, packed);
}

static void run_elements(const struct run *x) {
    const struct kernels *k = x->k;
    const struct shape *s = x->s;
    const int64_t n = s->batch * s->time * s->width, wide = s->vocabulary * s->width, rows = s->batch * s->time;
    INPUT(a, n, 21, 2);
    INPUT(b, n, 22, 1);
    INPUT(both, 2 * n, 25, 3);
    INPUT(wte, wide, 23, 1);
    OUTPUT(y, 2 * n);
    CLEANUP(freep) int32_t *tokens = tokens_random(rows, 24, (int32_t)s->vocabulary);
#define KEEP(count, call)                                                                                              \
    OK(call);                                                                                                          \
    keep(x->r, k, y, count)
    KEEP(n, k->gelu_forward(k, y, a, n, e));
    KEEP(n, k->gelu_backward(k, y, b, a, n, e));
    KEEP(n, k->gelu_erf_forward(k, y, a, n, e));
    KEEP(n, k->gelu_erf_backward(k, y, b, a, n, e));
    KEEP(n, k->swiglu_forward(k, y, both, rows, s->width, e));
    KEEP(2 * n, k->swiglu_backward(k, y, b, both, rows, s->width, e));
    KEEP(n, k->relu_forward(k, y, a, n, e));
    KEEP(n, k->relu_backward(k, y, b, a, n, e));
    KEEP(n, k->add(k, y, a, b, n, e));
    KEEP(n, k->copy(k, y, a, n, e));
    KEEP(n, k->dropout(k, y, a, s->batch, n / s->batch, &DROPOUT, e));
    KEEP(n, k->embedding_forward(k, y, tokens, wte, a, s->batch, s->time, s->width, s->vocabulary, e));
    KEEP(n, k->embedding_forward(k, y, tokens, wte, NULL, s->batch, s->time, s->width, s->vocabulary, e));
    float *dwte = take(x->r, wide), *dwpe = take(x->r, s->time * s->width);
    OK(k->embedding_backward(k, dwte, dwpe, tokens, b, s->batch, s->time, s->width, s->vocabulary, s->time, false, NULL,
                             e));
}

static void run_floats(const struct run *x) {
    const struct kernels *k = x->k;
    const int64_t n = x->s->batch * x->s->time * x->s->width, chunks = (n + KERNELS_CHUNK - 1) / KERNELS_CHUNK;
    CLEANUP(freep) float *a = tensor_random(n, 31, 2), *b = tensor_random(n, 32, 1);
    CLEANUP(freep) double *sums = malloc((size_t)chunks * sizeof *sums);
    float *p = take(x->r, n), *m = take(x->r, n), *v = take(x->r, n);
    memcpy(p, a, (size_t)n * sizeof *a);
    OK(k->fill(k, m, 0.05f, n, e));
    OK(k->fill(k, v, 0.25f, n, e));
    OK(k->accumulate(k, m, a, n, e));
    OUTPUT(weight, n);
    const struct adamw o = { .learning_rate = &(double){ 1e-3 },
                             .update = &(struct update){ .number = 2, .gradient_scale = 0.7f },
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .epsilon = 1e-8,
                             .weight_decay = 0.1 };
    const struct span span = { .n = n, .p = p, .weight = weight, .m = m, .v = v, .x = b, .decay = true };
    OK(k->adamw(k, &span, 1, &o, e));
    keep(x->r, k, weight, n);
    OK(k->sum_squares(k, &(struct norm_span){ sums, a, n }, 1, e));
    memcpy(take(x->r, 2 * chunks), sums, (size_t)chunks * sizeof *sums);
}

static struct results run_on(const struct kernels *k, enum kernels_precision inputs, const struct shape *s) {
    const int64_t n = s->batch * s->time * s->width;
    struct results r = { .capacity = 40 * (n + s->batch * s->time * (s->heads + 3)) + 2 * s->vocabulary * s->width +
                                     s->batch * s->time * s->vocabulary + 4096 };
    r.data = tensor_new(r.capacity);
    const struct run x = { k, inputs, s, &r };
    run_norms(&x);
    run_rows(&x);
    run_attention(&x, true);
    run_attention(&x, false);
    run_elements(&x);
    run_floats(&x);
    return r;
}

static struct results run(enum kernels_isa isa, enum kernels_precision precision, enum kernels_precision inputs,
                          int threads, const struct shape *s) {
    CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa, threads, precision);
    return run_on(k, inputs, s);
}

enum { SHAPES_COUNT = sizeof SHAPES / sizeof SHAPES[0] };

static void every_op_has_the_same_bits_for_1_2_and_4_threads(void **state) {
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++)
        for (int p = KERNELS_FP32; p <= KERNELS_FP16; p++)
            for (size_t i = 0; i < SHAPES_COUNT; i++) {
                if (is_too_slow(&SHAPES[i], p) ||
                    (!SHAPES[i].plain_too && (isa_at(isa) == KERNELS_ISA_PLAIN || p != KERNELS_FP32)))
                    continue;
                CLEANUP(kernels_closep) struct kernels *k = kernels_of_team(isa_at(isa), p);
                struct results one = run_on(k, p, &SHAPES[i]);
                for (int threads = p == KERNELS_FP32 ? 2 : 4; threads <= 4; threads *= 2) {
                    kernels_set_threads(k, threads);
                    struct results more = run_on(k, p, &SHAPES[i]);
                    assert_int_equal(one.used, more.used);
                    tensor_assert_same_bits(precision_name(p), one.data, more.data, one.used);
                    free(more.data);
                }
                free(one.data);
            }
}

/* The sums of squares at the end are doubles. Another test compares them. */
static int64_t comparable(const struct results *r, const struct shape *s) {
    return r->used - 2 * ((s->batch * s->time * s->width + 1023) / 1024);
}

/* A few units in the last place, because sums of 16-bit inputs may add up errors. With bf16 products, probabilities and
 * dS are also rounded. */
static const double TOLERANCE[] = { 2e-4, 0x1p-7, 0x1p-9 };

/* The plain path is the reference: the vector paths must compute the same values at a model's shape, up to rounding. */
static void the_vector_paths_agree_with_the_plain_one(void **state) {
    (void)state;
    for (int p = KERNELS_FP32; p <= KERNELS_FP16; p++)
        for (size_t i = 0; i < SHAPES_COUNT; i++) {
            if (!SHAPES[i].plain_too || is_too_slow(&SHAPES[i], p))
                continue;
            struct results plain = run(KERNELS_ISA_PLAIN, p, p, 2, &SHAPES[i]);
            for (int isa = 1; isa < isa_count(); isa++) {
                struct results vector = run(isa_at(isa), p, p, 2, &SHAPES[i]);
                tensor_assert_close(precision_name(p), vector.data, plain.data, comparable(&plain, &SHAPES[i]),
                                    TOLERANCE[p], p == KERNELS_FP32 ? 0.2 : 1);
                free(vector.data);
            }
            free(plain.data);
        }
}

/* For inputs that a precision holds exactly, its ops compute the same as fp32, up to the rounding of stored results. No
 * op adds in 16 bits. */
static void every_precision_agrees_with_fp32_on_its_own_numbers(void **state) {
    (void)state;
    for (int p = KERNELS_BF16; p <= KERNELS_FP16; p++)
        for (size_t i = 0; i < SHAPES_COUNT; i++) {
            if (!SHAPES[i].plain_too || is_too_slow(&SHAPES[i], p))
                continue;
            for (int isa = 0; isa < isa_count(); isa++) {
                struct results wide = run(isa_at(isa), KERNELS_FP32, p, 2, &SHAPES[i]);
                struct results narrow = run(isa_at(isa), p, p, 2, &SHAPES[i]);
                tensor_assert_close(precision_name(p), narrow.data, wide.data, comparable(&wide, &SHAPES[i]),
                                    TOLERANCE[p], 3); /* a bias's gradient is a sum of hundreds of rounded numbers */
                free(wide.data), free(narrow.data);
            }
        }
}

/* The scratch memory of the threads is that of the largest team, also while the team is small. Threads without work get
 * none. */
static void a_workspace_has_room_for_the_largest_team(void **state) {
    (void)state;
    const struct attention_dims one = { 1, 64, 1, 1, 16, true, false }, many = { 2, 64, 4, 4, 16, true, false };
    CLEANUP(kernels_closep) struct kernels *k = kernels_of_team(KERNELS_ISA_BEST, KERNELS_FP32);
    const size_t alone = k->attention_workspace(k, &one), four = k->attention_workspace(k, &many);
    assert_int_equal(k->threads, 1);
    assert_int_equal(four, 4 * alone);
    kernels_set_threads(k, 4);
    assert_int_equal(k->threads, 4);
    assert_int_equal(k->fp32->threads, 4);
    assert_int_equal(k->attention_workspace(k, &one), alone);
    assert_int_equal(k->attention_workspace(k, &many), four);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_the_same_bits_for_1_2_and_4_threads),
        cmocka_unit_test(a_workspace_has_room_for_the_largest_team),
        cmocka_unit_test(the_vector_paths_agree_with_the_plain_one),
        cmocka_unit_test(every_precision_agrees_with_fp32_on_its_own_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
