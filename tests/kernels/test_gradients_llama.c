/* The ops of a Llama that a GPT does not have: the forward pass against its formula in double, and the backward pass
 * against central finite differences of that formula, for every instruction set of this processor, at shapes without
 * common divisors. */
#include "tests/kernels/gradient.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- RMS norm ---*/
struct norm_case {
    double *x, *gamma, *y;
    const float *weight;
    int64_t rows, width;
};

static double norm_loss(const void *ctx) {
    const struct norm_case *c = ctx;
    reference_rmsnorm(c->y, c->x, c->gamma, c->rows, c->width, 1e-5);
    return weighted(c->y, c->weight, c->rows * c->width);
}

static void check_rmsnorm_shape(struct kernels *k, int64_t rows, int64_t width) {
    const int64_t n = rows * width;
    CLEANUP(freep) float *x = tensor_random(n, 1, 2), *branch = tensor_random(n, 2, 1), *y = tensor_new(n);
    CLEANUP(freep) float *gamma = tensor_random(width, 3, 1), *r = tensor_new(n), *rstd = tensor_new(rows);
    CLEANUP(freep) float *dy = tensor_random(n, 5, 1), *addend = tensor_random(n, 6, 1), *dx = tensor_new(n);
    CLEANUP(freep) float *dgamma = tensor_new(width), *plus = tensor_copy(addend, n);
    CLEANUP(freep) void *workspace = malloc(k->rmsnorm_backward_workspace(k, rows, width));
    OK(k->rmsnorm_forward(k, y, r, rstd, x, branch, gamma, rows, width, 1e-5f, e));
    CLEANUP(freep)
    double *r2 = doubles_of(r, n), *gamma2 = doubles_of(gamma, width), *y2 = malloc((size_t)n * sizeof *y2);
    const struct norm_case c = { r2, gamma2, y2, dy, rows, width };
    for (int64_t i = 0; i < n; i++)
        assert_true(r[i] == x[i] + branch[i]);
    (void)norm_loss(&c);
    tensor_assert_near("RMS norm", y, y2, n, 2e-6, 1);
    OK(k->rmsnorm_backward(k, dx, dgamma, dy, NULL, r, rstd, gamma, rows, width, false, workspace, e));
    check_gradient("RMS norm's dx", norm_loss, &c, r2, dx, n);
    check_gradient("RMS norm's dgamma", norm_loss, &c, gamma2, dgamma, width);
    /* In place of the addend, with dgamma added to the old content. Without a branch, r is not needed. */
    CLEANUP(freep) float *twice = tensor_copy(dgamma, width), *again = tensor_new(n);
    OK(k->rmsnorm_backward(k, plus, twice, dy, plus, r, rstd, gamma, rows, width, true, workspace, e));
    for (int64_t i = 0; i < n; i++)
        assert_true(fabsf(plus[i] - (addend[i] + dx[i])) <= 1e-5f * (1 + fabsf(dx[i])));
    for (int64_t i = 0; i < width; i++)
        assert_true(twice[i] == 2 * dgamma[i]);
    OK(k->rmsnorm_forward(k, again, NULL, rstd, r, NULL, gamma, rows, width, 1e-5f, e));
    tensor_assert_same_bits("RMS norm without a branch", again, y, n);
}

static void check_rmsnorm(struct kernels *k) {
    check_rmsnorm_shape(k, 1, 16);
    check_rmsnorm_shape(k, 5, 33);
    check_rmsnorm_shape(k, 70, 13);
}

static void rmsnorm_with_a_branch_agrees_with_finite_differences(void **state) {
    (void)state;
    for_each_isa(check_rmsnorm);
}

/* --- SwiGLU ---*/
struct swiglu_case {
    double *gate_up, *y;
    const float *weight;
    int64_t rows, width;
};

static double swiglu_loss(const void *ctx) {
    const struct swiglu_case *c = ctx;
    reference_swiglu(c->y, c->gate_up, c->rows, c->width);
    return weighted(c->y, c->weight, c->rows * c->width);
}

static void check_swiglu(struct kernels *k) {
    const int64_t rows = 7, width = 37, n = rows * width;
    CLEANUP(freep) float *gate_up = tensor_random(2 * n, 1, 6), *y = tensor_new(n), *dy = tensor_random(n, 2, 1);
    CLEANUP(freep) float *gradient = tensor_new(2 * n);
    CLEANUP(freep) double *gate_up2 = doubles_of(gate_up, 2 * n), *y2 = malloc((size_t)n * sizeof *y2);
    const struct swiglu_case c = { gate_up2, y2, dy, rows, width };
    (void)swiglu_loss(&c);
    OK(k->swiglu_forward(k, y, gate_up, rows, width, e));
    tensor_assert_near("swiglu", y, y2, n, 2e-6, 0.1);
    OK(k->swiglu_backward(k, gradient, dy, gate_up, rows, width, e));
    check_gradient("swiglu's gradient", swiglu_loss, &c, gate_up2, gradient, 2 * n);
    OK(k->swiglu_backward(k, gate_up, dy, gate_up, rows, width, e));
    tensor_assert_same_bits("swiglu's gradient, in place", gate_up, gradient, 2 * n);
}

static void swiglu_agrees_with_its_formula_and_finite_differences(void **state) {
    (void)state;
    for_each_isa(check_swiglu);
}

static void swiglu_is_finite_where_exp_is_not(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(i), 1);
        const float x[] = { 1e4f, -1e4f, 200, -200, 1, 1, 1, 1 }, want[] = { 1e4f, 0, 200, 0 }, one[] = { 1, 1, 1, 1 };
        float y[4], gradient[8];
        OK(k->swiglu_forward(k, y, x, 1, 4, e));
        OK(k->swiglu_backward(k, gradient, one, x, 1, 4, e));
        for (int c = 0; c < 4; c++)
            assert_true(fabsf(y[c] - want[c]) < 1e-6f && fabsf(gradient[c] - (c % 2 ? 0 : 1)) < 1e-6f &&
                        fabsf(gradient[4 + c] - want[c]) < 1e-6f);
    }
}

/* --- rotary positions ---*/
static void check_rope(struct kernels *k) {
    const struct attention_dims d = { .batch = 2, .time = 9, .heads = 3, .kv_heads = 1, .head = 22 };
    const struct rope rope = { .theta = 100 };
    const int64_t heads = d.heads + 2 * d.kv_heads, n = d.batch * d.time * heads * d.head;
    CLEANUP(freep) float *x = tensor_random(n, 1, 1), *y = tensor_new(n), *back = tensor_new(n);
    CLEANUP(freep) double *x2 = doubles_of(x, n), *y2 = doubles_of(x, n);
    OK(k->rope(k, y, x, &d, &rope, false, e));
    for (int64_t i = 0; i < d.batch * d.time * heads; i++)
        if (i % heads < d.heads + d.kv_heads)
            reference_rope(y2 + i * d.head, x2 + i * d.head, d.head, i / heads % d.time, rope.theta);
    tensor_assert_near("turned", y, y2, n, 1e-6, 1);
    /* The gradient of a rotation is the inverse rotation, because a rotation is orthogonal: <turn(x), w> = <x,
     * back(w)>, and back(turn(x)) = x. */
    OK(k->rope(k, back, y, &d, &rope, true, e));
    tensor_assert_near("turned back", back, x2, n, 1e-6, 1);
    OK(k->rope(k, x, x, &d, &rope, false, e));
    tensor_assert_same_bits("turned in place", x, y, n);
}

static void rope_turns_queries_and_keys_and_back(void **state) {
    (void)state;
    for_each_isa(check_rope);
}

/* Angles are kept between calls. Another setting, or more positions, must not get the old angles. */
static void rope_follows_a_change_of_settings(void **state) {
    (void)state;
    CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(KERNELS_ISA_BEST, 1);
    const double theta[] = { 100, 10000, 100 };
    const int64_t time[] = { 3, 3, 40 }, head[] = { 8, 8, 16 };
    for (int i = 0; i < 3; i++) {
        const struct attention_dims d = { .batch = 1, .time = time[i], .heads = 1, .kv_heads = 1, .head = head[i] };
        const int64_t n = time[i] * 3 * head[i], last = (time[i] - 1) * 3 * head[i];
        CLEANUP(freep) float *x = tensor_random(n, 1, 1);
        CLEANUP(freep) double *x2 = doubles_of(x, n), *y2 = doubles_of(x, n);
        OK(k->rope(k, x, x, &d, &(struct rope){ .theta = theta[i] }, false, e));
        reference_rope(y2 + last, x2 + last, head[i], time[i] - 1, theta[i]);
        tensor_assert_near("the last query", x + last, y2 + last, head[i], 1e-6, 1);
    }
}

/* --- relu ---*/
static void check_relu(struct kernels *k) {
    float x[37], y[37], dy[37], dx[37];
    for (int i = 0; i < 37; i++)
        x[i] = (float)(i - 18), dy[i] = (float)i + 0.5f;
    x[36] = NAN;
    OK(k->relu_forward(k, y, x, 37, e));
    OK(k->relu_backward(k, dx, dy, y, 36, e));
    for (int i = 0; i < 36; i++)
        assert_true(y[i] == (i > 18 ? x[i] : 0) && dx[i] == (i > 18 ? dy[i] : 0));
    assert_true(isnan(y[36]));
}

static void relu_cuts_at_zero_and_keeps_a_nan(void **state) {
    (void)state;
    for_each_isa(check_relu);
}

/* --- embedding without positions ---*/
static void check_embedding(struct kernels *k) {
    const float wte[] = { 1, 2, 3, 4, 5, 6 }, dy[] = { 1, 1, 10, 20, 100, 200 };
    float y[6], dwte[6];
    OK(k->embedding_forward(k, y, (int32_t[]){ 2, 0, 2 }, wte, NULL, 1, 3, 2, 3, e));
    OK(k->embedding_backward(k, dwte, NULL, (int32_t[]){ 2, 0, 2 }, dy, 1, 3, 2, 3, 3, false, NULL, e));
    assert_memory_equal(y, ((float[]){ 5, 6, 1, 2, 5, 6 }), sizeof y);
    assert_memory_equal(dwte, ((float[]){ 10, 20, 0, 0, 101, 201 }), sizeof dwte);
}

static void an_embedding_may_have_no_positions(void **state) {
    (void)state;
    for_each_isa(check_embedding);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_with_a_branch_agrees_with_finite_differences),
        cmocka_unit_test(swiglu_agrees_with_its_formula_and_finite_differences),
        cmocka_unit_test(swiglu_is_finite_where_exp_is_not),
        cmocka_unit_test(rope_turns_queries_and_keys_and_back),
        cmocka_unit_test(rope_follows_a_change_of_settings),
        cmocka_unit_test(relu_cuts_at_zero_and_keeps_a_nan),
        cmocka_unit_test(an_embedding_may_have_no_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
