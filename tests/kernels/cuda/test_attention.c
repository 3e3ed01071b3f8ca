/* Attention's own kernels, run on the CPU as they stand, against the CPU's readable reference. What this leaves to a
 * GPU: that the matrix units and asynchronous copies do what tests/kernels/cuda/shim says of them. */
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/cuda.h"
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct shape {
    const char *what;
    struct attention_dims dims;
    float dropout;
};

static const struct shape of_mma[] = {
    { "causal, a tile and a piece", { 2, 70, 2, 2, 64, true }, 0 },
    { "full, two key heads for four", { 1, 130, 4, 2, 64, false }, 0 },
    { "causal, wide heads, dropout", { 1, 100, 2, 1, 128, true }, 0.25F },
    { "full, heads filled up, dropout, odd time", { 2, 67, 2, 1, 40, false }, 0.1F },
    { "wide heads filled up", { 1, 65, 1, 1, 96, true }, 0 },
    { "one position", { 1, 1, 2, 2, 8, true }, 0 },
};
static const struct shape of_plain[] = {
    { "causal", { 2, 37, 4, 2, 64, true }, 0 },
    { "full, odd heads, dropout", { 1, 21, 2, 1, 5, false }, 0.3F },
    { "wide heads", { 1, 9, 1, 1, 160, true }, 0 },
};

typedef status_t forward_fn(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                            const struct attention_dims *d, const struct dropout *dropout, struct err *e);
typedef status_t backward_fn(const struct kernels *k, const struct attention_gradient *g,
                             const struct attention_dims *d, const struct dropout *dropout, struct err *e);

/* One direction's results as fp32. */
static void assert_elements_close(const char *what, const struct kernels *k, const element_t *got,
                                  const element_t *want, int64_t n, double tolerance) {
    float *a = floats_of(k, got, n), *b = floats_of(k, want, n);
    tensor_assert_close(what, a, b, n, tolerance, 1);
    free(a);
    free(b);
}

static void compare(const struct shape *s, enum kernels_precision precision, forward_fn *forward,
                    backward_fn *backward) {
    const struct attention_dims *d = &s->dims;
    const struct dropout dropout = { s->dropout, { 0x123456789abcdefULL, 7, 42 }, 5 };
    const int64_t packed = d->batch * d->time * (d->heads + 2 * d->kv_heads) * d->head,
                  plain = d->batch * d->time * d->heads * d->head, rows = d->batch * d->heads * d->time;
    const double tolerance = precision == KERNELS_FP32 ? 2e-5 : precision == KERNELS_BF16 ? 2e-2 : 3e-3;
    struct cuda device = { .table = { .precision = precision } };
    struct kernels *cpu = kernels_of_precision(KERNELS_ISA_PLAIN, 1, precision);
    element_t *qkv = elements_random(cpu, packed, 1, 1), *dout = elements_random(cpu, plain, 2, 1);
    element_t *out[2] = { elements_new(cpu, plain), elements_new(cpu, plain) };
    element_t *dqkv[2] = { elements_new(cpu, packed), elements_new(cpu, packed) };
    float *lse[2] = { tensor_new(rows), tensor_new(rows) }, *total = tensor_new(rows);
    void *workspace = malloc(cpu->attention_workspace(cpu, d));

    print_message("%s, %s\n", s->what, precision_name(precision));
    OK(forward(&device.table, out[0], lse[0], qkv, d, &dropout, e));
    OK(cpu->attention_forward(cpu, out[1], lse[1], qkv, d, &dropout, workspace, e));
    tensor_assert_close("lse", lse[0], lse[1], rows, 1e-5, 1);
    assert_elements_close("out", cpu, out[0], out[1], plain, tolerance);

    const struct attention_gradient g = { dqkv[0], dout, qkv, out[1], lse[1], total };
    OK(backward(&device.table, &g, d, &dropout, e));
    OK(cpu->attention_backward(cpu, dqkv[1], dout, qkv, out[1], lse[1], d, &dropout, workspace, e));
    assert_elements_close("dqkv", cpu, dqkv[0], dqkv[1], packed, tolerance);

    void *all[] = { qkv, dout, out[0], out[1], dqkv[0], dqkv[1], lse[0], lse[1], total, workspace };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    kernels_close(cpu);
}

static void test_attention_on_matrix_units_is_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof of_mma / sizeof *of_mma; i++) {
        compare(&of_mma[i], KERNELS_BF16, attention_mma_forward, attention_mma_backward);
        compare(&of_mma[i], KERNELS_FP16, attention_mma_forward, attention_mma_backward);
    }
}

static void test_plain_attention_is_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof of_plain / sizeof *of_plain; i++)
        for (int p = KERNELS_FP32; p <= KERNELS_FP16; p++)
            compare(&of_plain[i], (enum kernels_precision)p, attention_plain_forward, attention_plain_backward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_on_matrix_units_is_the_reference),
        cmocka_unit_test(test_plain_attention_is_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
