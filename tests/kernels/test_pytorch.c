/* Every op against values recorded from PyTorch 2.13 (record_pytorch.py), for every instruction set. */
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { TENSORS_MOST = 12 };

struct record {
    int count;
    int64_t n[TENSORS_MOST];
    float *t[TENSORS_MOST];
};

static void record_done(struct record *r) {
    for (int i = 0; i < r->count; i++)
        free(r->t[i]);
}

static int64_t read_int64(FILE *f) {
    int64_t x = 0;
    assert_int_equal(fread(&x, sizeof x, 1, f), 1);
    return x;
}

static struct record record_read(const char *name, int count) {
    const char *source = getenv("TRAINYARD_SOURCE");
    char path[512];
    snprintf(path, sizeof path, "%s/tests/kernels/data/%s.bin", source ? source : ".", name);
    CLEANUP(fclosep) FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    struct record r = { .count = (int)read_int64(f) };
    assert_int_equal(r.count, count);
    for (int i = 0; i < r.count; i++) {
        r.n[i] = read_int64(f);
        r.t[i] = tensor_new(r.n[i]);
        assert_int_equal(fread(r.t[i], sizeof(float), (size_t)r.n[i], f), r.n[i]);
    }
    return r;
}

static int32_t *as_tokens(const float *a, int64_t n) {
    int32_t *t = (int32_t *)tensor_new(n);
    for (int64_t i = 0; i < n; i++)
        t[i] = (int32_t)a[i];
    return t;
}

static void for_each_isa(const char *name, int count, void (*check)(struct kernels *k, const struct record *r)) {
    CLEANUP(record_done) struct record r = record_read(name, count);
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(i), 2);
        check(k, &r);
    }
}

static void close_to(const char *what, const float *got, const struct record *r, int i) {
    tensor_assert_close(what, got, r->t[i], r->n[i], 2e-5, 0.5);
}

static void check_linear_gelu(struct kernels *k, const struct record *r) {
    enum { X, W, B, PRE, Y, DY, DPRE, DX, DW, DB };
    const struct linear_dims d = { .rows = 24, .in = 40, .out = 56 };
    CLEANUP(freep) float *pre = tensor_new(r->n[PRE]), *y = tensor_new(r->n[Y]), *dy = tensor_copy(r->t[DY], r->n[DY]);
    CLEANUP(freep) float *dx = tensor_new(r->n[DX]), *dw = tensor_new(r->n[DW]), *db = tensor_new(r->n[DB]);
    CLEANUP(freep) void *workspace = malloc(k->linear_backward_bias_workspace(k, &d));
    OK(k->linear_forward(k, y, pre, r->t[X], r->t[W], r->t[B], &d, e));
    close_to("pre", pre, r, PRE);
    close_to("y", y, r, Y);
    OK(k->linear_backward_bias(k, db, dy, pre, &d, false, workspace, e));
    OK(k->linear_backward_input(k, dx, dy, r->t[W], &d, false, e));
    OK(k->linear_backward_weight(k, dw, r->t[X], dy, &d, false, workspace, e));
    close_to("the gradient of pre", dy, r, DPRE);
    close_to("dx", dx, r, DX);
    close_to("dw", dw, r, DW);
    close_to("dbias", db, r, DB);
}

static void linear_with_gelu_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("linear_gelu", 10, check_linear_gelu);
}

static void check_linear_transposed(struct kernels *k, const struct record *r) {
    enum { X, W, Y, DY, DX, DW };
    const struct linear_dims d = { .rows = 24, .in = 40, .out = 65, .transposed = true };
    CLEANUP(freep) float *y = tensor_new(r->n[Y]), *dx = tensor_new(r->n[DX]), *dw = tensor_new(r->n[DW]);
    OK(k->linear_forward(k, y, NULL, r->t[X], r->t[W], NULL, &d, e));
    OK(k->linear_backward_input(k, dx, r->t[DY], r->t[W], &d, false, e));
    OK(k->linear_backward_weight(k, dw, r->t[X], r->t[DY], &d, false, NULL, e));
    close_to("y", y, r, Y);
    close_to("dx", dx, r, DX);
    close_to("dw", dw, r, DW);
}

static void linear_with_a_transposed_weight_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("linear_transposed", 6, check_linear_transposed);
}

static void check_layernorm(struct kernels *k, const struct record *r) {
    enum { X, BRANCH, GAMMA, BETA, R, Y, DY, ADDEND, DX, DGAMMA, DBETA };
    const int64_t rows = 37, width = 50, n = rows * width;
    CLEANUP(freep) float *y = tensor_new(n), *sum = tensor_new(n), *mean = tensor_new(rows), *rstd = tensor_new(rows);
    CLEANUP(freep) float *dx = tensor_new(n), *dgamma = tensor_new(width), *dbeta = tensor_new(width);
    CLEANUP(freep) void *workspace = malloc(k->layernorm_backward_workspace(k, rows, width));
    OK(k->layernorm_forward(k, y, sum, mean, rstd, r->t[X], r->t[BRANCH], r->t[GAMMA], r->t[BETA], rows, width, 1e-5f,
                            e));
    OK(k->layernorm_backward(k, dx, dgamma, dbeta, r->t[DY], r->t[ADDEND], sum, mean, rstd, r->t[GAMMA], rows, width,
                             false, workspace, e));
    close_to("r", sum, r, R);
    close_to("y", y, r, Y);
    close_to("dx", dx, r, DX);
    close_to("dgamma", dgamma, r, DGAMMA);
    close_to("dbeta", dbeta, r, DBETA);
}

static void residual_layernorm_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("residual_layernorm", 11, check_layernorm);
}

static void check_attention(struct kernels *k, const struct record *r) {
    enum { QKV, Y, DY, DQKV };
    const struct attention_dims d = { .batch = 2, .time = 70, .width = 48, .heads = 3 };
    const struct dropout none = { .probability = 0 };
    CLEANUP(freep) float *y = tensor_new(r->n[Y]), *lse = tensor_new(2 * 3 * 70), *dqkv = tensor_new(r->n[DQKV]);
    CLEANUP(freep) void *workspace = malloc(k->attention_workspace(k, &d));
    OK(k->attention_forward(k, y, lse, r->t[QKV], &d, &none, workspace, e));
    OK(k->attention_backward(k, dqkv, r->t[DY], r->t[QKV], y, lse, &d, &none, workspace, e));
    close_to("attention", y, r, Y);
    close_to("dqkv", dqkv, r, DQKV);
}

static void attention_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("attention", 4, check_attention);
}

static void check_cross_entropy(struct kernels *k, const struct record *r) {
    enum { LOGITS, TARGETS, LOSSES, DLOGITS };
    CLEANUP(freep) float *logits = tensor_copy(r->t[LOGITS], r->n[LOGITS]), *losses = tensor_new(19);
    CLEANUP(freep) int32_t *targets = as_tokens(r->t[TARGETS], 19);
    OK(k->cross_entropy(k, losses, logits, targets, 19, 65, 1.0f / 18, true, e));
    close_to("losses", losses, r, LOSSES);
    tensor_assert_close("dlogits", logits, r->t[DLOGITS], r->n[DLOGITS], 2e-5, 1e-3);
}

static void cross_entropy_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("cross_entropy", 4, check_cross_entropy);
}

static void check_embedding(struct kernels *k, const struct record *r) {
    enum { TOKENS, WTE, WPE, Y, DY, DWTE, DWPE };
    CLEANUP(freep) int32_t *tokens = as_tokens(r->t[TOKENS], 21);
    CLEANUP(freep) float *y = tensor_new(r->n[Y]), *dwte = tensor_new(r->n[DWTE]), *dwpe = tensor_new(r->n[DWPE]);
    OK(k->embedding_forward(k, y, tokens, r->t[WTE], r->t[WPE], 3, 7, 20, 11, e));
    OK(k->embedding_backward(k, dwte, dwpe, tokens, r->t[DY], 3, 7, 20, 11, 7, false, e));
    close_to("y", y, r, Y);
    close_to("dwte", dwte, r, DWTE);
    close_to("dwpe", dwpe, r, DWPE);
}

static void embedding_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("embedding", 7, check_embedding);
}

static void check_adamw(struct kernels *k, const struct record *r) {
    enum { START, GRADIENTS, END = 4, M, V };
    CLEANUP(freep) float *p = tensor_copy(r->t[START], 300), *m = tensor_new(300), *v = tensor_new(300);
    OK(k->fill(k, m, 0, 300, e));
    OK(k->fill(k, v, 0, 300, e));
    for (int update = 1; update <= 3; update++) {
        /* Twice the gradient under half the scale: the scale must be applied. */
        CLEANUP(freep) float *g = tensor_copy(r->t[GRADIENTS + update - 1], 300);
        OK(k->scale(k, g, 2, 300, e));
        const struct adamw o = { .learning_rate = 1e-2,
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .epsilon = 1e-8,
                                 .weight_decay = 0.1,
                                 .gradient_scale = 0.5f,
                                 .updates = update };
        OK(k->adamw(k, p, m, v, g, 300, &o, e));
    }
    tensor_assert_close("parameters", p, r->t[END], 300, 1e-5, 0.05);
    tensor_assert_close("the first moment", m, r->t[M], 300, 1e-5, 0.01);
    tensor_assert_close("the second moment", v, r->t[V], 300, 1e-5, 0.01);
}

static void adamw_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("adamw", 7, check_adamw);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_with_gelu_agrees_with_pytorch),
        cmocka_unit_test(linear_with_a_transposed_weight_agrees_with_pytorch),
        cmocka_unit_test(residual_layernorm_agrees_with_pytorch),
        cmocka_unit_test(attention_agrees_with_pytorch),
        cmocka_unit_test(cross_entropy_agrees_with_pytorch),
        cmocka_unit_test(embedding_agrees_with_pytorch),
        cmocka_unit_test(adamw_agrees_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
