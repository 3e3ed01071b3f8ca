/* The same bits for 1, 2 and 4 threads, op by op, at the shapes of three GPTs and at odd ones, for every instruction
 * set. Matrix products have their own test. */
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct shape {
    int64_t batch, time, width, heads, vocabulary;
    bool plain_too; /* small enough for the plain path */
};

static const struct shape SHAPES[] = {
    { 6, 64, 128, 4, 65, true },      /* nanoGPT 4 x 128 */
    { 12, 256, 384, 6, 65, false },   /* 6 x 384 */
    { 1, 64, 768, 12, 50257, false }, /* GPT-2 124M, one sample of its four */
    { 3, 67, 45, 5, 31, true },       /* nothing divides anything */
    { 1, 1, 1, 1, 1, true },          { 1, 513, 80, 1, 1000, true },
};

/* All outputs of all ops at one shape, one after the other. */
struct results {
    float *data;
    int64_t used, room;
};

static float *take(struct results *r, int64_t n) {
    assert_true(r->used + n <= r->room);
    r->used += n;
    return r->data + r->used - n;
}

static const struct dropout DROPOUT = { .probability = 0.2f,
                                        .key = { .seed = 5, .step = 9, .op = 2 },
                                        .first_sample = 3 };

static void run_rows(struct kernels *k, const struct shape *s, struct results *r) {
    const int64_t rows = s->batch * s->time, C = s->width, n = rows * C;
    CLEANUP(freep) float *x = tensor_random(n, 1, 1), *branch = tensor_random(n, 2, 1), *gamma = tensor_random(C, 3, 1);
    CLEANUP(freep) float *dy = tensor_random(n, 4, 1), *pre = tensor_random(n, 5, 3);
    CLEANUP(freep) float *logits = tensor_random(rows * s->vocabulary, 6, 5);
    CLEANUP(freep) int32_t *targets = tokens_random(rows, 7, (int32_t)s->vocabulary);
    CLEANUP(freep) void *workspace = malloc(k->layernorm_backward_workspace(k, rows, C));
    float *y = take(r, n), *sum = take(r, n), *mean = take(r, rows), *rstd = take(r, rows);
    OK(k->layernorm_forward(k, y, sum, mean, rstd, x, branch, gamma, gamma, rows, C, 1e-5f, e));
    float *dx = take(r, n), *dgamma = take(r, C), *dbeta = take(r, C);
    OK(k->layernorm_backward(k, dx, dgamma, dbeta, dy, branch, sum, mean, rstd, gamma, rows, C, false, workspace, e));
    const struct linear_dims d = { .rows = rows, .in = 1, .out = C };
    CLEANUP(freep) void *sums = malloc(k->linear_backward_bias_workspace(k, &d));
    float *dpre = take(r, n), *dbias = take(r, C);
    memcpy(dpre, dy, (size_t)n * sizeof *dy);
    OK(k->linear_backward_bias(k, dbias, dpre, pre, &d, false, sums, e));
    OK(k->cross_entropy(k, take(r, rows), logits, targets, rows, s->vocabulary, 0.01f, true, e));
    memcpy(take(r, rows * s->vocabulary), logits, (size_t)(rows * s->vocabulary) * sizeof *logits);
}

static void run_attention(struct kernels *k, const struct shape *s, struct results *r) {
    const struct attention_dims d = { s->batch, s->time, s->width, s->heads };
    const int64_t n = s->batch * s->time * s->width;
    CLEANUP(freep) float *qkv = tensor_random(3 * n, 11, 1), *dout = tensor_random(n, 12, 1);
    CLEANUP(freep) void *workspace = malloc(k->attention_workspace(k, &d));
    float *out = take(r, n), *lse = take(r, s->batch * s->heads * s->time), *dqkv = take(r, 3 * n);
    OK(k->attention_forward(k, out, lse, qkv, &d, &DROPOUT, workspace, e));
    OK(k->attention_backward(k, dqkv, dout, qkv, out, lse, &d, &DROPOUT, workspace, e));
}

static void run_elements(struct kernels *k, const struct shape *s, struct results *r) {
    const int64_t n = s->batch * s->time * s->width, wide = s->vocabulary * s->width, rows = s->batch * s->time;
    CLEANUP(freep) float *x = tensor_random(n, 21, 2), *b = tensor_random(n, 22, 1), *wte = tensor_random(wide, 23, 1);
    CLEANUP(freep) int32_t *tokens = tokens_random(rows, 24, (int32_t)s->vocabulary);
    OK(k->gelu_forward(k, take(r, n), x, n, e));
    OK(k->gelu_backward(k, take(r, n), b, x, n, e));
    OK(k->add(k, take(r, n), x, b, n, e));
    OK(k->dropout(k, take(r, n), x, s->batch, n / s->batch, &DROPOUT, e));
    OK(k->embedding_forward(k, take(r, n), tokens, wte, x, s->batch, s->time, s->width, s->vocabulary, e));
    float *dwte = take(r, wide), *dwpe = take(r, s->time * s->width);
    OK(k->embedding_backward(k, dwte, dwpe, tokens, b, s->batch, s->time, s->width, s->vocabulary, s->time, false, e));
    float *p = take(r, n), *m = take(r, n), *v = take(r, n);
    memcpy(p, x, (size_t)n * sizeof *x);
    OK(k->fill(k, m, 0.5f, n, e));
    OK(k->fill(k, v, 0.25f, n, e));
    OK(k->scale(k, m, 0.1f, n, e));
    OK(k->accumulate(k, m, x, n, e));
    const struct adamw o = { 1e-3, 0.9, 0.95, 1e-8, 0.1, 0.7f, 2 };
    OK(k->adamw(k, p, m, v, b, n, &o, e));
    const int64_t chunks = (n + KERNELS_CHUNK - 1) / KERNELS_CHUNK;
    CLEANUP(freep) double *sums = malloc((size_t)chunks * sizeof *sums);
    OK(k->sum_squares(k, sums, x, n, e));
    memcpy(take(r, 2 * chunks), sums, (size_t)chunks * sizeof *sums);
}

static struct results run(enum kernels_isa isa, int threads, const struct shape *s) {
    CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa, threads);
    const int64_t n = s->batch * s->time * s->width;
    struct results r = { .room = 20 * (n + s->batch * s->time * (s->heads + 3)) + 2 * s->vocabulary * s->width +
                                 s->batch * s->time * s->vocabulary + 4096 };
    r.data = tensor_new(r.room);
    run_rows(k, s, &r);
    run_attention(k, s, &r);
    run_elements(k, s, &r);
    return r;
}

static void every_op_has_the_same_bits_for_1_2_and_4_threads(void **state) {
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++)
        for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
            if (isa_at(isa) == KERNELS_ISA_PLAIN && !SHAPES[i].plain_too)
                continue;
            struct results one = run(isa_at(isa), 1, &SHAPES[i]);
            for (int threads = 2; threads <= 4; threads *= 2) {
                struct results more = run(isa_at(isa), threads, &SHAPES[i]);
                assert_int_equal(one.used, more.used);
                tensor_assert_same_bits("an output", one.data, more.data, one.used);
                free(more.data);
            }
            free(one.data);
        }
}

/* The plain path is the reference: what the vector paths compute at a model's shape must be the same up to rounding. */
static void the_vector_paths_agree_with_the_plain_one(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        if (!SHAPES[i].plain_too)
            continue;
        struct results plain = run(KERNELS_ISA_PLAIN, 2, &SHAPES[i]);
        for (int isa = 1; isa < isa_count(); isa++) {
            struct results vector = run(isa_at(isa), 2, &SHAPES[i]);
            /* The sums of squares at the end are doubles: compared elsewhere. */
            const int64_t chunks = (SHAPES[i].batch * SHAPES[i].time * SHAPES[i].width + 1023) / 1024;
            tensor_assert_close("an output", vector.data, plain.data, plain.used - 2 * chunks, 2e-4, 0.2);
            free(vector.data);
        }
        free(plain.data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_the_same_bits_for_1_2_and_4_threads),
        cmocka_unit_test(the_vector_paths_agree_with_the_plain_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
