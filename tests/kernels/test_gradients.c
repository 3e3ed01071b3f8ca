/* Every op: the forward pass against its formula in double, and the backward pass against central finite differences of
 * that formula, for every instruction set of this processor, at shapes without common divisors. */
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

/* --- gelu ---------------------------------------------------------------------------------------------------------*/
struct gelu_case {
    double *x, *y;
    const float *weight;
    int64_t n;
};

static double gelu_loss(const void *ctx) {
    const struct gelu_case *c = ctx;
    reference_gelu(c->y, c->x, c->n);
    return weighted(c->y, c->weight, c->n);
}

static void check_gelu(struct kernels *k) {
    const int64_t n = 1003;
    CLEANUP(freep) float *x = tensor_random(n, 1, 6), *y = tensor_new(n), *dy = tensor_random(n, 2, 1);
    CLEANUP(freep) float *dx = tensor_new(n);
    CLEANUP(freep) double *x2 = doubles_of(x, n), *y2 = malloc((size_t)n * sizeof *y2);
    const struct gelu_case c = { x2, y2, dy, n };
    OK(k->gelu_forward(k, y, x, n, e));
    reference_gelu(y2, x2, n);
    tensor_assert_near("gelu", y, y2, n, 1e-6, 0.1);
    OK(k->gelu_backward(k, dx, dy, x, n, e));
    check_gradient("gelu's gradient", gelu_loss, &c, x2, dx, n);
}

static void gelu_agrees_with_its_formula_and_finite_differences(void **state) {
    (void)state;
    for_each_isa(check_gelu);
}

static double gelu_erf_loss(const void *ctx) {
    const struct gelu_case *c = ctx;
    reference_gelu_erf(c->y, c->x, c->n);
    return weighted(c->y, c->weight, c->n);
}

static void check_gelu_erf(struct kernels *k) {
    const int64_t n = 1003;
    CLEANUP(freep) float *x = tensor_random(n, 1, 6), *y = tensor_new(n), *dy = tensor_random(n, 2, 1);
    CLEANUP(freep) double *x2 = doubles_of(x, n), *y2 = malloc((size_t)n * sizeof *y2);
    OK(k->gelu_erf_forward(k, y, x, n, e));
    reference_gelu_erf(y2, x2, n);
    tensor_assert_near("gelu by erf", y, y2, n, 1e-6, 0.1);
    OK(k->gelu_erf_backward(k, dy, dy, x, n, e)); /* in place */
    CLEANUP(freep) float *weight = tensor_random(n, 2, 1);
    const struct gelu_case c = { x2, y2, weight, n };
    check_gradient("the gradient of gelu by erf", gelu_erf_loss, &c, x2, dy, n);
}

static void gelu_by_erf_agrees_with_its_formula_and_finite_differences(void **state) {
    (void)state;
    for_each_isa(check_gelu_erf);
}

static void gelu_is_accurate_and_finite_over_all_of_its_range(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(i), 1);
        float x[] = {
            0, -0.0f, 1e-30f, -1e-30f, 1e-4f, -1e-4f, 1, -1, 5, -5, 9, -9, 20, -20, 1e4f, -1e4f, 1e12f, -1e12f
        };
        enum { N = sizeof x / sizeof x[0] };
        float y[N], dx[N], one[N];
        double x2[N], y2[N];
        for (int j = 0; j < N; j++)
            x2[j] = x[j], one[j] = 1;
        reference_gelu(y2, x2, N);
        OK(k->gelu_forward(k, y, x, N, e));
        tensor_assert_near("gelu", y, y2, N, 1e-6, 1e-7);
        OK(k->gelu_backward(k, dx, one, x, N, e));
        for (int j = 0; j < N; j++)
            assert_true(dx[j] >= -0.2f && dx[j] <= 1.2f);
        reference_gelu_erf(y2, x2, N);
        OK(k->gelu_erf_forward(k, y, x, N, e));
        tensor_assert_near("gelu by erf", y, y2, N, 1e-6, 1e-20);
        OK(k->gelu_erf_backward(k, dx, one, x, N, e));
        for (int j = 0; j < N; j++)
            assert_true(dx[j] >= -0.2f && dx[j] <= 1.2f);
    }
}

/* --- linear with gelu and bias -------------------------------------------------------------------------------------*/
static void check_linear_bias(struct kernels *k) {
    const struct linear_dims d = { .rows = 37, .in = 5, .out = 21 };
    const int64_t n = d.rows * d.out;
    CLEANUP(freep) float *pre = tensor_random(n, 1, 3), *dy = tensor_random(n, 2, 1), *db = tensor_random(d.out, 3, 1);
    CLEANUP(freep) float *want = tensor_new(n), *start = tensor_copy(db, d.out);
    CLEANUP(freep) void *workspace = malloc(k->linear_backward_bias_workspace(k, &d));
    OK(k->gelu_backward(k, want, dy, pre, n, e));
    OK(k->linear_backward_bias(k, db, dy, pre, &d, true, workspace, e));
    tensor_assert_close("the gradient of the pre-activation", dy, want, n, 1e-6, 1e-3);
    double sums[21];
    for (int64_t c = 0; c < d.out; c++) {
        sums[c] = start[c];
        for (int64_t row = 0; row < d.rows; row++)
            sums[c] += want[row * d.out + c];
    }
    tensor_assert_near("the bias's gradient", db, sums, d.out, 1e-6, 10);
    OK(k->linear_backward_bias(k, db, dy, NULL, &d, false, workspace, e));
    for (int64_t c = 0; c < d.out; c++)
        sums[c] -= start[c];
    tensor_assert_near("the bias's gradient, overwritten", db, sums, d.out, 1e-6, 10);
}

static void the_bias_and_the_gelu_of_a_linear_layer_go_backward_in_one_pass(void **state) {
    (void)state;
    for_each_isa(check_linear_bias);
}

/* --- layer norm ----------------------------------------------------------------------------------------------------*/
struct norm_case {
    double *x, *gamma, *beta, *y;
    const float *weight;
    int64_t rows, width;
};

static double norm_loss(const void *ctx) {
    const struct norm_case *c = ctx;
    reference_layernorm(c->y, c->x, NULL, c->gamma, c->beta, c->rows, c->width, 1e-5);
    return weighted(c->y, c->weight, c->rows * c->width);
}

static void check_layernorm_shape(struct kernels *k, int64_t rows, int64_t width) {
    const int64_t n = rows * width;
    CLEANUP(freep)
    float *x = tensor_random(n, 1, 2), *branch = tensor_random(n, 2, 1), *gamma = tensor_random(width, 3, 1);
    CLEANUP(freep) float *beta = tensor_random(width, 4, 1), *y = tensor_new(n), *r = tensor_new(n);
    CLEANUP(freep) float *mean = tensor_new(rows), *rstd = tensor_new(rows), *dy = tensor_random(n, 5, 1);
    CLEANUP(freep) float *addend = tensor_random(n, 6, 1), *dx = tensor_new(n), *dgamma = tensor_new(width);
    CLEANUP(freep) float *dbeta = tensor_new(width), *plus = tensor_copy(addend, n);
    CLEANUP(freep) void *workspace = malloc(k->layernorm_backward_workspace(k, rows, width));
    OK(k->layernorm_forward(k, y, r, mean, rstd, x, branch, gamma, beta, rows, width, 1e-5f, e));
    CLEANUP(freep) double *r2 = doubles_of(r, n), *gamma2 = doubles_of(gamma, width), *beta2 = doubles_of(beta, width);
    CLEANUP(freep) double *y2 = malloc((size_t)n * sizeof *y2);
    const struct norm_case c = { r2, gamma2, beta2, y2, dy, rows, width };
    for (int64_t i = 0; i < n; i++)
        assert_true(r[i] == x[i] + branch[i]);
    (void)norm_loss(&c);
    tensor_assert_near("layer norm", y, y2, n, 2e-6, 1);
    OK(k->layernorm_backward(k, dx, dgamma, dbeta, dy, NULL, r, mean, rstd, gamma, rows, width, false, workspace, e));
    check_gradient("layer norm's dx", norm_loss, &c, r2, dx, n);
    check_gradient("layer norm's dgamma", norm_loss, &c, gamma2, dgamma, width);
    check_gradient("layer norm's dbeta", norm_loss, &c, beta2, dbeta, width);
    /* In place of the addend. Gradients of parameters are added to the old content. */
    CLEANUP(freep) float *twice = tensor_copy(dgamma, width);
    OK(k->layernorm_backward(k, plus, twice, NULL, dy, plus, r, mean, rstd, gamma, rows, width, true, workspace, e));
    for (int64_t i = 0; i < n; i++)
        assert_true(fabsf(plus[i] - (addend[i] + dx[i])) <= 1e-5f * (1 + fabsf(dx[i])));
    for (int64_t i = 0; i < width; i++)
        assert_true(twice[i] == 2 * dgamma[i]);
}

static void check_layernorm(struct kernels *k) {
    check_layernorm_shape(k, 1, 16);
    check_layernorm_shape(k, 5, 33);
    check_layernorm_shape(k, 70, 13);
}

static void layernorm_with_a_branch_agrees_with_finite_differences(void **state) {
    (void)state;
    for_each_isa(check_layernorm);
}

static void layernorm_keeps_its_digits_far_from_zero(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(i), 1);
        float x[768], y[768], gamma[768], mean, rstd;
        for (int c = 0; c < 768; c++)
            x[c] = 1000 + (float)(c % 2), gamma[c] = 1;
        OK(k->layernorm_forward(k, y, NULL, &mean, &rstd, x, NULL, gamma, NULL, 1, 768, 1e-5f, e));
        for (int c = 0; c < 768; c++)
            assert_true(fabsf(y[c] - (c % 2 ? 1 : -1)) < 1e-4f);
    }
}

/* --- attention -----------------------------------------------------------------------------------------------------*/
struct attention_case {
    double *qkv, *out, *lse;
    const float *weight;
    const struct attention_dims *d;
    const struct dropout *dropout;
};

static double attention_loss(const void *ctx) {
    const struct attention_case *c = ctx;
    reference_attention(c->out, c->lse, c->qkv, c->d, c->dropout);
    return weighted(c->out, c->weight, c->d->batch * c->d->time * c->d->heads * c->d->head);
}

static void check_attention_shape(struct kernels *k, const struct attention_dims *d, float probability) {
    const int64_t step = 7;
    const struct dropout dropout = { .probability = probability,
                                     .key = { .seed = 0x123456789abcdefu, .step = &step, .op = 3 },
                                     .first_sample = 11 };
    const int64_t n = d->batch * d->time * d->heads * d->head, rows = d->batch * d->heads * d->time;
    const int64_t packed = d->batch * d->time * (d->heads + 2 * d->kv_heads) * d->head;
    CLEANUP(freep) float *qkv = tensor_random(packed, 1, 1.5f), *dout = tensor_random(n, 2, 1), *out = tensor_new(n);
    CLEANUP(freep) float *lse = tensor_new(rows), *dqkv = tensor_new(packed);
    CLEANUP(freep) void *workspace = malloc(k->attention_workspace(k, d));
    CLEANUP(freep) double *qkv2 = doubles_of(qkv, packed), *out2 = malloc((size_t)n * sizeof *out2);
    CLEANUP(freep) double *lse2 = malloc((size_t)rows * sizeof *lse2);
    const struct attention_case c = { qkv2, out2, lse2, dout, d, &dropout };
    (void)attention_loss(&c);
    OK(k->attention_forward(k, out, lse, qkv, d, &dropout, workspace, e));
    tensor_assert_near("attention", out, out2, n, 1e-5, 1);
    tensor_assert_near("attention's lse", lse, lse2, rows, 1e-5, 1);
    OK(k->attention_backward(k, dqkv, dout, qkv, out, lse, d, &dropout, workspace, e));
    check_gradient("attention's dqkv", attention_loss, &c, qkv2, dqkv, packed);
}

static void check_attention(struct kernels *k) {
    check_attention_shape(k, &(struct attention_dims){ 2, 5, 2, 2, 3, true, false }, 0);
    check_attention_shape(k, &(struct attention_dims){ 1, 1, 1, 1, 16, true, false }, 0);
    check_attention_shape(k, &(struct attention_dims){ 2, 67, 2, 1, 22, true, false }, 0);
    check_attention_shape(k, &(struct attention_dims){ 1, 131, 6, 3, 8, true, true }, 0.3f);
    check_attention_shape(k, &(struct attention_dims){ 1, 64, 1, 1, 80, true, true }, 0.1f);
    check_attention_shape(k, &(struct attention_dims){ 2, 70, 4, 2, 10, false, false }, 0);
    check_attention_shape(k, &(struct attention_dims){ 1, 65, 3, 1, 16, false, true }, 0.2f);
}

static void attention_agrees_with_finite_differences_with_and_without_dropout(void **state) {
    (void)state;
    for_each_isa(check_attention);
}

static void attention_survives_scores_that_exp_cannot_hold(void **state) {
    (void)state;
    const struct attention_dims d = { 1, 130, 1, 1, 16, true, false };
    const struct dropout none = { .probability = 0 };
    const int64_t n = d.time * d.head;
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(i), 1);
        CLEANUP(freep) float *qkv = tensor_random(3 * n, 1, 60), *out = tensor_new(n), *lse = tensor_new(d.time);
        CLEANUP(freep) float *dqkv = tensor_new(3 * n), *dout = tensor_random(n, 2, 1);
        CLEANUP(freep) void *workspace = malloc(k->attention_workspace(k, &d));
        bool finite;
        OK(k->attention_forward(k, out, lse, qkv, &d, &none, workspace, e));
        OK(k->attention_backward(k, dqkv, dout, qkv, out, lse, &d, &none, workspace, e));
        OK(k->all_finite(k, &finite, out, n, e));
        assert_true(finite);
        OK(k->all_finite(k, &finite, dqkv, 3 * n, e));
        assert_true(finite);
    }
}

/* --- cross entropy -------------------------------------------------------------------------------------------------*/
struct loss_case {
    double *logits, *losses;
    const int32_t *targets, *partners; /* partners NULL: rows are not mixed */
    const float *shares;
    int64_t rows, vocabulary;
};

static void find_losses(const struct loss_case *c) {
    reference_cross_entropy(c->losses, c->logits, c->targets, c->rows, c->vocabulary);
    CLEANUP(freep) double *others = malloc((size_t)c->rows * sizeof *others);
    if (c->partners)
        reference_cross_entropy(others, c->logits, c->partners, c->rows, c->vocabulary);
    for (int64_t i = 0; c->partners && i < c->rows; i++)
        if (c->targets[i] >= 0 && c->partners[i] >= 0)
            c->losses[i] = c->shares[i] * c->losses[i] + (1 - (double)c->shares[i]) * others[i];
}

static double mean_loss(const void *ctx) {
    const struct loss_case *c = ctx;
    double sum = 0;
    find_losses(c);
    for (int64_t i = 0; i < c->rows; i++)
        sum += 0.25 * c->losses[i];
    return sum;
}

static void check_cross_entropy_shape(struct kernels *k, int64_t rows, int64_t vocabulary) {
    const int64_t n = rows * vocabulary;
    CLEANUP(freep) float *logits = tensor_random(n, 1, 8), *losses = tensor_new(rows), *again = tensor_new(rows);
    CLEANUP(freep) float *kept = tensor_copy(logits, n);
    CLEANUP(freep) int32_t *targets = tokens_random(rows, 2, (int32_t)vocabulary);
    targets[rows / 2] = -1;
    CLEANUP(freep) double *logits2 = doubles_of(logits, n), *losses2 = malloc((size_t)rows * sizeof *losses2);
    const struct loss_case c = { logits2, losses2, targets, NULL, NULL, rows, vocabulary };
    (void)mean_loss(&c);
    OK(k->cross_entropy(k, losses, logits, targets, NULL, NULL, rows, vocabulary, NULL, e));
    tensor_assert_near("losses", losses, losses2, rows, 1e-5, 0.1);
    tensor_assert_same_bits("logits that are only read", logits, kept, n);
    OK(k->cross_entropy(k, again, logits, targets, NULL, NULL, rows, vocabulary, &(float){ 0.25f }, e));
    tensor_assert_same_bits("losses with and without gradient", losses, again, rows);
    check_gradient("the gradient of the logits", mean_loss, &c, logits2, logits, n);
    for (int64_t v = 0; v < vocabulary; v++)
        assert_true(logits[rows / 2 * vocabulary + v] == 0);
}

static void check_cross_entropy(struct kernels *k) {
    check_cross_entropy_shape(k, 4, 3);
    check_cross_entropy_shape(k, 7, 65);
    check_cross_entropy_shape(k, 3, 50257 / 16);
}

static void cross_entropy_agrees_with_finite_differences_and_ignores_minus_one(void **state) {
    (void)state;
    for_each_isa(check_cross_entropy);
}

enum { MIXED_ROWS = 9 };

static void check_mixed_shape(struct kernels *k, int64_t vocabulary) {
    const int64_t n = MIXED_ROWS * vocabulary;
    CLEANUP(freep) float *logits = tensor_random(n, 3, 8), *kept = tensor_copy(logits, n);
    CLEANUP(freep) int32_t *targets = tokens_random(MIXED_ROWS, 4, (int32_t)vocabulary);
    CLEANUP(freep) int32_t *partners = tokens_random(MIXED_ROWS, 5, (int32_t)vocabulary);
    CLEANUP(freep) double *logits2 = doubles_of(logits, n);
    double losses2[MIXED_ROWS];
    float losses[MIXED_ROWS], again[MIXED_ROWS];
    const float shares[MIXED_ROWS] = { 0.3F, 0, 1, 0.7F, 0.5F, 0.25F, 0.9F, 1e-4F, 0.4F };
    targets[4] = -1;
    partners[5] = targets[5];
    partners[6] = -1;
    const struct loss_case c = { logits2, losses2, targets, partners, shares, MIXED_ROWS, vocabulary };
    find_losses(&c);
    OK(k->cross_entropy(k, losses, logits, targets, partners, shares, MIXED_ROWS, vocabulary, NULL, e));
    tensor_assert_near("mixed losses", losses, losses2, MIXED_ROWS, 1e-5, 0.1);
    tensor_assert_same_bits("logits that are only read", logits, kept, n);
    OK(k->cross_entropy(k, again, logits, targets, partners, shares, MIXED_ROWS, vocabulary, &(float){ 0.25F }, e));
    tensor_assert_same_bits("losses with and without gradient", losses, again, MIXED_ROWS);
    check_gradient("the gradient of mixed logits", mean_loss, &c, logits2, logits, n);
    OK(k->cross_entropy(k, again, kept, targets, NULL, NULL, MIXED_ROWS, vocabulary, &(float){ 0.25F }, e));
    tensor_assert_same_bits("losses of rows that are not mixed", losses + 4, again + 4, 3);
    tensor_assert_same_bits("their gradient", logits + 4 * vocabulary, kept + 4 * vocabulary, 3 * vocabulary);
}

static void check_mixed_cross_entropy(struct kernels *k) {
    check_mixed_shape(k, 3);
    check_mixed_shape(k, 65);
    check_mixed_shape(k, 1000);
}

static void mixed_cross_entropy_agrees_with_finite_differences(void **state) {
    (void)state;
    for_each_isa(check_mixed_cross_entropy);
}

static void a_token_or_target_outside_the_vocabulary_is_refused_by_name(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(i), 1);
        float a[4] = { 0 }, y[4];
        struct err e = { "" };
        assert_int_equal(k->cross_entropy(k, y, a, (int32_t[]){ 0, 2 }, NULL, NULL, 2, 2, NULL, &e),
                         ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, "target 2 at row 1 is outside the vocabulary of 2");
        assert_int_equal(k->cross_entropy(k, y, a, (int32_t[]){ -2, 0 }, NULL, NULL, 2, 2, &(float){ 1 }, &e),
                         ST_INVALID_ARGUMENT);
        const int32_t own[] = { 0, 1 }, partners[] = { 1, 3 };
        assert_int_equal(k->cross_entropy(k, y, a, own, partners, y, 2, 2, NULL, &e), ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, "target 3 at row 1 is outside the vocabulary of 2");
        assert_int_equal(k->embedding_forward(k, y, (int32_t[]){ 0, -1 }, a, a, 1, 2, 2, 2, &e), ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, "token -1 at position 1 is outside the vocabulary of 2");
    }
}

/* --- embedding -----------------------------------------------------------------------------------------------------*/
struct embedding_case {
    double *wte, *wpe, *y;
    const int32_t *tokens;
    const float *weight;
};

enum { EB = 3, ET = 5, EC = 70, EV = 4 };

static double embedding_loss(const void *ctx) {
    const struct embedding_case *c = ctx;
    reference_embedding(c->y, c->tokens, c->wte, c->wpe, EB, ET, EC);
    return weighted(c->y, c->weight, EB * ET * EC);
}

static void check_embedding(struct kernels *k) {
    const int64_t n = EB * ET * EC, positions = ET + 1;
    CLEANUP(freep) float *wte = tensor_random(EV * EC, 1, 1), *wpe = tensor_random(positions * EC, 2, 1);
    CLEANUP(freep) float *y = tensor_new(n), *dy = tensor_random(n, 3, 1), *dwte = tensor_random(EV * EC, 4, 1);
    CLEANUP(freep) float *dwpe = tensor_random(positions * EC, 5, 1);
    CLEANUP(freep) int32_t *tokens = tokens_random(EB * ET, 6, EV);
    CLEANUP(freep) double *wte2 = doubles_of(wte, EV * EC), *wpe2 = doubles_of(wpe, positions * EC);
    CLEANUP(freep) double *y2 = malloc((size_t)n * sizeof *y2);
    const struct embedding_case c = { wte2, wpe2, y2, tokens, dy };
    OK(k->embedding_forward(k, y, tokens, wte, wpe, EB, ET, EC, EV, e));
    (void)embedding_loss(&c);
    tensor_assert_near("embedding", y, y2, n, 1e-6, 1);
    OK(k->embedding_backward(k, dwte, dwpe, tokens, dy, EB, ET, EC, EV, positions, false, NULL, e));
    check_gradient("embedding's dwte", embedding_loss, &c, wte2, dwte, EV * EC);
    check_gradient("embedding's dwpe", embedding_loss, &c, wpe2, dwpe, positions * EC);
    CLEANUP(freep) float *twice = tensor_copy(dwte, EV * EC);
    OK(k->embedding_backward(k, twice, dwpe, tokens, dy, EB, ET, EC, EV, positions, true, NULL, e));
    for (int i = 0; i < EV * EC; i++)
        assert_true(fabsf(twice[i] - 2 * dwte[i]) <= 1e-5f);
}

static void embedding_agrees_with_finite_differences(void **state) {
    (void)state;
    for_each_isa(check_embedding);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_agrees_with_its_formula_and_finite_differences),
        cmocka_unit_test(gelu_by_erf_agrees_with_its_formula_and_finite_differences),
        cmocka_unit_test(gelu_is_accurate_and_finite_over_all_of_its_range),
        cmocka_unit_test(the_bias_and_the_gelu_of_a_linear_layer_go_backward_in_one_pass),
        cmocka_unit_test(layernorm_with_a_branch_agrees_with_finite_differences),
        cmocka_unit_test(layernorm_keeps_its_digits_far_from_zero),
        cmocka_unit_test(attention_agrees_with_finite_differences_with_and_without_dropout),
        cmocka_unit_test(attention_survives_scores_that_exp_cannot_hold),
        cmocka_unit_test(cross_entropy_agrees_with_finite_differences_and_ignores_minus_one),
        cmocka_unit_test(mixed_cross_entropy_agrees_with_finite_differences),
        cmocka_unit_test(a_token_or_target_outside_the_vocabulary_is_refused_by_name),
        cmocka_unit_test(embedding_agrees_with_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
