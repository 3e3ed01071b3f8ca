/* Every op against values recorded from PyTorch 2.13 (record_pytorch.py), for every instruction set, in fp32, and in
 * bf16 against PyTorch's own bf16. */
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MAX_TENSORS = 12 };

struct record {
    int count;
    int64_t n[MAX_TENSORS];
    float *t[MAX_TENSORS];
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

/* The recorded file of one case on one table: each tensor as elements, and as fp32 for ops that read fp32. */
struct recorded {
    struct kernels *k;
    struct record r;
};

static void for_each_isa(const char *name, int count, bool bf16_too, void (*check)(struct recorded *x)) {
    for (int p = KERNELS_FP32; p <= (bf16_too ? KERNELS_BF16 : KERNELS_FP32); p++) {
        char file[64];
        snprintf(file, sizeof file, "%s%s", name, p ? "_bf16" : "");
        CLEANUP(record_done) struct record r = record_read(file, count);
        for (int i = 0; i < isa_count(); i++) {
            CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa_at(i), 2, p);
            check(&(struct recorded){ k, r });
        }
    }
}

/* bf16: two units in the last place, plus PyTorch's own intermediate roundings. */
static void close_to(const char *what, const struct recorded *x, const float *got, int i) {
    const bool narrow = x->k->precision != KERNELS_FP32;
    tensor_assert_close(what, got, x->r.t[i], x->r.n[i], narrow ? 0x1p-6 : 2e-5, narrow ? 1 : 0.5);
}

/* PyTorch sums the gradients of a bf16 norm's parameters in bf16. These sums differ by several per cent from the sums
 * of the same inputs in double, which this test expects. */
static void norm_sums_close_to(const char *what, const struct recorded *x, const float *got, int i) {
    const bool narrow = x->k->precision != KERNELS_FP32;
    tensor_assert_close(what, got, x->r.t[i], x->r.n[i], narrow ? 0.07 : 2e-5, narrow ? 4 : 0.5);
}

static void elements_close_to(const char *what, const struct recorded *x, const element_t *got, int i) {
    CLEANUP(freep) float *a = floats_of(x->k, got, x->r.n[i]);
    close_to(what, x, a, i);
}

#define IN(name, i)       CLEANUP(freep) element_t *name = elements_of(x->k, x->r.t[i], x->r.n[i])
#define OUT(name, i)      CLEANUP(freep) element_t *name = elements_new(x->k, x->r.n[i])
#define GRADIENT(name, i) CLEANUP(freep) float *name = tensor_new(x->r.n[i])

static void check_linear_gelu(struct recorded *x) {
    enum { X, W, B, PRE, Y, DY, DPRE, DX, DW, DB };
    const struct kernels *k = x->k;
    const struct linear_dims d = { .rows = 24, .in = 40, .out = 56 };
    IN(a, X);
    IN(w, W);
    IN(b, B);
    IN(dy, DY);
    OUT(pre, PRE);
    OUT(y, Y);
    OUT(dx, DX);
    GRADIENT(dw, DW);
    GRADIENT(db, DB);
    CLEANUP(freep) void *workspace = malloc(k->linear_backward_bias_workspace(k, &d));
    OK(k->linear_forward(k, y, pre, a, w, b, &d, e));
    elements_close_to("pre", x, pre, PRE);
    elements_close_to("y", x, y, Y);
    OK(k->linear_backward_bias(k, db, dy, pre, &d, false, workspace, e));
    OK(k->linear_backward_input(k, dx, dy, w, &d, false, e));
    OK(k->linear_backward_weight(k, dw, a, dy, &d, false, workspace, e));
    elements_close_to("the gradient of pre", x, dy, DPRE);
    elements_close_to("dx", x, dx, DX);
    close_to("dw", x, dw, DW);
    close_to("dbias", x, db, DB);
}

static void linear_with_gelu_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("linear_gelu", 10, true, check_linear_gelu);
}

static void check_gelu_erf(struct recorded *x) {
    enum { X, Y, DY, DX };
    IN(a, X);
    IN(dy, DY);
    OUT(y, Y);
    OK(x->k->gelu_erf_forward(x->k, y, a, 301, e));
    elements_close_to("y", x, y, Y);
    OK(x->k->gelu_erf_backward(x->k, y, dy, a, 301, e));
    elements_close_to("dx", x, y, DX);
}

static void gelu_by_erf_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("gelu_erf", 4, true, check_gelu_erf);
}

static void check_linear_transposed(struct recorded *x) {
    enum { X, W, Y, DY, DX, DW };
    const struct kernels *k = x->k;
    const struct linear_dims d = { .rows = 24, .in = 40, .out = 65, .transposed = true };
    IN(a, X);
    IN(w, W);
    IN(dy, DY);
    OUT(y, Y);
    OUT(dx, DX);
    GRADIENT(dw, DW);
    OK(k->linear_forward(k, y, NULL, a, w, NULL, &d, e));
    OK(k->linear_backward_input(k, dx, dy, w, &d, false, e));
    OK(k->linear_backward_weight(k, dw, a, dy, &d, false, NULL, e));
    elements_close_to("y", x, y, Y);
    elements_close_to("dx", x, dx, DX);
    close_to("dw", x, dw, DW);
}

static void linear_with_a_transposed_weight_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("linear_transposed", 6, true, check_linear_transposed);
}

static void check_layernorm(struct recorded *x) {
    enum { X, BRANCH, GAMMA, BETA, R, Y, DY, ADDEND, DX, DGAMMA, DBETA };
    const struct kernels *k = x->k;
    const int64_t rows = 37, width = 50;
    IN(a, X);
    IN(branch, BRANCH);
    IN(gamma, GAMMA);
    IN(beta, BETA);
    IN(dy, DY);
    IN(addend, ADDEND);
    OUT(sum, R);
    OUT(y, Y);
    OUT(dx, DX);
    GRADIENT(dgamma, DGAMMA);
    GRADIENT(dbeta, DBETA);
    float mean[37], rstd[37];
    CLEANUP(freep) void *workspace = malloc(k->layernorm_backward_workspace(k, rows, width));
    OK(k->layernorm_forward(k, y, sum, mean, rstd, a, branch, gamma, beta, rows, width, 1e-5f, e));
    OK(k->layernorm_backward(k, dx, dgamma, dbeta, dy, addend, sum, mean, rstd, gamma, rows, width, false, workspace,
                             e));
    elements_close_to("r", x, sum, R);
    elements_close_to("y", x, y, Y);
    elements_close_to("dx", x, dx, DX);
    norm_sums_close_to("dgamma", x, dgamma, DGAMMA);
    norm_sums_close_to("dbeta", x, dbeta, DBETA);
}

static void residual_layernorm_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("residual_layernorm", 11, true, check_layernorm);
}

static void check_rmsnorm(struct recorded *x) {
    enum { X, BRANCH, GAMMA, R, Y, DY, ADDEND, DX, DGAMMA };
    const struct kernels *k = x->k;
    const int64_t rows = 37, width = 50;
    IN(a, X);
    IN(branch, BRANCH);
    IN(gamma, GAMMA);
    IN(dy, DY);
    IN(addend, ADDEND);
    OUT(sum, R);
    OUT(y, Y);
    OUT(dx, DX);
    GRADIENT(dgamma, DGAMMA);
    float rstd[37];
    CLEANUP(freep) void *workspace = malloc(k->rmsnorm_backward_workspace(k, rows, width));
    OK(k->rmsnorm_forward(k, y, sum, rstd, a, branch, gamma, rows, width, 1e-5f, e));
    OK(k->rmsnorm_backward(k, dx, dgamma, dy, addend, sum, rstd, gamma, rows, width, false, workspace, e));
    elements_close_to("r", x, sum, R);
    elements_close_to("y", x, y, Y);
    elements_close_to("dx", x, dx, DX);
    close_to("dgamma", x, dgamma, DGAMMA);
}

static void residual_rmsnorm_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("residual_rmsnorm", 9, true, check_rmsnorm);
}

static void check_swiglu(struct recorded *x) {
    enum { X, Y, DY, DX };
    const struct kernels *k = x->k;
    IN(a, X);
    IN(dy, DY);
    OUT(y, Y);
    OUT(dx, DX);
    OK(k->swiglu_forward(k, y, a, 13, 37, e));
    OK(k->swiglu_backward(k, dx, dy, a, 13, 37, e));
    elements_close_to("y", x, y, Y);
    elements_close_to("dx", x, dx, DX);
}

static void swiglu_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("swiglu", 4, true, check_swiglu);
}

static void check_turns(struct recorded *x, const struct rope *rope) {
    enum { X, Y, DY, DX };
    const struct kernels *k = x->k;
    const struct attention_dims d = { .batch = 2, .time = 40, .heads = 3, .kv_heads = 1, .head = 12 };
    IN(a, X);
    IN(dy, DY);
    OUT(y, Y);
    OK(k->rope(k, y, a, &d, rope, false, e));
    elements_close_to("y", x, y, Y);
    OK(k->rope(k, dy, dy, &d, rope, true, e));
    elements_close_to("dx, in place", x, dy, DX);
}

static void check_rope(struct recorded *x) { check_turns(x, &(struct rope){ .theta = 10000 }); }

static void check_rope_llama3(struct recorded *x) {
    check_turns(x, &(struct rope){ 500, { .factor = 8, .low_frequency = 1, .high_frequency = 4, .context = 64 } });
}

static void rotary_positions_agree_with_hugging_face(void **state) {
    (void)state;
    for_each_isa("rope", 4, true, check_rope);
    for_each_isa("rope_llama3", 4, true, check_rope_llama3);
}

static void check_attention_of(struct recorded *x, const struct attention_dims *d) {
    enum { QKV, Y, DY, DQKV };
    const struct kernels *k = x->k;
    const struct dropout none = { .probability = 0 };
    IN(qkv, QKV);
    IN(dy, DY);
    OUT(y, Y);
    OUT(dqkv, DQKV);
    CLEANUP(freep) float *lse = tensor_new(d->batch * d->heads * d->time);
    CLEANUP(freep) void *workspace = malloc(k->attention_workspace(k, d));
    OK(k->attention_forward(k, y, lse, qkv, d, &none, workspace, e));
    OK(k->attention_backward(k, dqkv, dy, qkv, y, lse, d, &none, workspace, e));
    elements_close_to("attention", x, y, Y);
    elements_close_to("dqkv", x, dqkv, DQKV);
}

static void check_attention(struct recorded *x) {
    check_attention_of(x, &(struct attention_dims){ 2, 70, 3, 3, 16, true, false });
}
static void check_grouped(struct recorded *x) {
    check_attention_of(x, &(struct attention_dims){ 1, 67, 4, 2, 8, true, false });
}
static void check_full(struct recorded *x) {
    check_attention_of(x, &(struct attention_dims){ 2, 33, 2, 2, 8, false, false });
}

static void attention_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("attention", 4, true, check_attention);
    for_each_isa("attention_grouped", 4, true, check_grouped);
    for_each_isa("attention_full", 4, true, check_full);
}

static void check_cross_entropy(struct recorded *x) {
    enum { LOGITS, TARGETS, LOSSES, DLOGITS };
    const struct kernels *k = x->k;
    IN(logits, LOGITS);
    float losses[19];
    CLEANUP(freep) int32_t *targets = as_tokens(x->r.t[TARGETS], 19);
    OK(k->cross_entropy(k, losses, logits, targets, NULL, NULL, 19, 65, &(float){ 1.0f / 18 }, e));
    CLEANUP(freep) float *gradient = floats_of(k, logits, x->r.n[DLOGITS]);
    close_to("losses", x, losses, LOSSES);
    tensor_assert_close("dlogits", gradient, x->r.t[DLOGITS], x->r.n[DLOGITS], k->precision ? 0x1p-6 : 2e-5, 1e-3);
}

static void cross_entropy_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("cross_entropy", 4, true, check_cross_entropy);
}

static void check_embedding(struct recorded *x) {
    enum { TOKENS, WTE, WPE, Y, DY, DWTE, DWPE };
    const struct kernels *k = x->k;
    CLEANUP(freep) int32_t *tokens = as_tokens(x->r.t[TOKENS], 21);
    IN(wte, WTE);
    IN(wpe, WPE);
    IN(dy, DY);
    OUT(y, Y);
    GRADIENT(dwte, DWTE);
    GRADIENT(dwpe, DWPE);
    OK(k->embedding_forward(k, y, tokens, wte, wpe, 3, 7, 20, 11, e));
    OK(k->embedding_backward(k, dwte, dwpe, tokens, dy, 3, 7, 20, 11, 7, false, NULL, e));
    elements_close_to("y", x, y, Y);
    close_to("dwte", x, dwte, DWTE);
    close_to("dwpe", x, dwpe, DWPE);
}

static void embedding_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("embedding", 7, true, check_embedding);
}

static void check_adamw(struct recorded *x) {
    const struct kernels *k = x->k;
    const struct record *r = &x->r;
    enum { START, GRADIENTS, END = 4, M, V };
    CLEANUP(freep) float *p = tensor_copy(r->t[START], 300), *m = tensor_new(300), *v = tensor_new(300);
    OK(k->fill(k, m, 0, 300, e));
    OK(k->fill(k, v, 0, 300, e));
    for (int update = 1; update <= 3; update++) {
        /* Twice the gradient under half the scale: the scale must be applied. */
        CLEANUP(freep) float *g = tensor_copy(r->t[GRADIENTS + update - 1], 300);
        OK(k->accumulate(k, g, r->t[GRADIENTS + update - 1], 300, e));
        const struct adamw o = { .learning_rate = &(double){ 1e-2 },
                                 .update = &(struct update){ .number = update, .gradient_scale = 0.5f },
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .epsilon = 1e-8,
                                 .weight_decay = 0.1 };
        OK(k->adamw(k, &(struct span){ .n = 300, .p = p, .m = m, .v = v, .x = g, .decay = true }, 1, &o, e));
    }
    tensor_assert_close("parameters", p, r->t[END], 300, 1e-5, 0.05);
    tensor_assert_close("the first moment", m, r->t[M], 300, 1e-5, 0.01);
    tensor_assert_close("the second moment", v, r->t[V], 300, 1e-5, 0.01);
}

static void adamw_agrees_with_pytorch(void **state) {
    (void)state;
    for_each_isa("adamw", 7, false, check_adamw);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_with_gelu_agrees_with_pytorch),
        cmocka_unit_test(gelu_by_erf_agrees_with_pytorch),
        cmocka_unit_test(linear_with_a_transposed_weight_agrees_with_pytorch),
        cmocka_unit_test(residual_layernorm_agrees_with_pytorch),
        cmocka_unit_test(residual_rmsnorm_agrees_with_pytorch),
        cmocka_unit_test(swiglu_agrees_with_pytorch),
        cmocka_unit_test(rotary_positions_agree_with_hugging_face),
        cmocka_unit_test(attention_agrees_with_pytorch),
        cmocka_unit_test(cross_entropy_agrees_with_pytorch),
        cmocka_unit_test(embedding_agrees_with_pytorch),
        cmocka_unit_test(adamw_agrees_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
