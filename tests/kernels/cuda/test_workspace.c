/* A plan computes a device's workspaces from a description, without the device. They must equal those of the device's
 * table, to the byte, and those of any other device. pair.c checks in every case that no op writes behind its
 * workspace. */
#include "tests/kernels/cuda/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Compares the call on the device's table with the call on its description. */
#define ASSERT_SAME(p, call)                                                                                           \
    do {                                                                                                               \
        size_t bytes[SIDES];                                                                                           \
        for (int s = CPU; s < SIDES; s++) {                                                                            \
            const struct kernels *k = s == CPU ? described_of(p) : (p)->k[s];                                          \
            bytes[s] = call;                                                                                           \
        }                                                                                                              \
        assert_int_equal(bytes[ONE], bytes[CPU]);                                                                      \
        assert_int_equal(bytes[MANY], bytes[CPU]);                                                                     \
    } while (0)

static const struct kernels *described_of(const struct pair *p) {
    const struct kernels *k = kernels_shape_only(
        &(struct kernels_config){ .device = "cuda", .ordinal = 7, .precision = p->precision });
    assert_non_null(k);
    assert_int_equal(k->precision, p->precision);
    assert_int_equal(k->fp32->precision, KERNELS_FP32);
    return k;
}

static void linear_case(struct pair *p) {
    const struct linear_dims d = { .rows = pair_between(p, 1, 1 << 20),
                                   .in = pair_between(p, 1, 1 << 14),
                                   .out = pair_between(p, 1, 1 << 17) };
    ASSERT_SAME(p, k->linear_backward_bias_workspace(k, &d));
    ASSERT_SAME(p, k->linear_backward_weight_workspace(k, &d));
    ASSERT_SAME(p, k->layernorm_backward_workspace(k, d.rows, d.in));
    ASSERT_SAME(p, k->rmsnorm_backward_workspace(k, d.rows, d.in));
    ASSERT_SAME(p, k->embedding_backward_workspace(k, 8, d.in, d.out));
    ASSERT_SAME(p, k->fp32->adafactor_workspace(k->fp32, d.in, d.out));
}

static void attention_case(struct pair *p) {
    struct attention_dims d = { .batch = pair_between(p, 1, 64),
                                .time = pair_between(p, 1, 1 << 12),
                                .kv_heads = pair_between(p, 1, 8),
                                .head = pair_between(p, 1, 128),
                                .causal = pair_either(p) };
    d.heads = d.kv_heads * pair_between(p, 1, 4);
    ASSERT_SAME(p, k->attention_workspace(k, &d));
}

static void image_case(struct pair *p) {
    const struct convolution_dims c = { .batch = pair_between(p, 1, 256),
                                        .height = pair_between(p, 7, 256),
                                        .width = pair_between(p, 7, 256),
                                        .in = pair_between(p, 1, 512),
                                        .out = pair_between(p, 1, 512),
                                        .kernel = pair_between(p, 1, 7),
                                        .stride = pair_between(p, 1, 2) };
    const struct batchnorm_dims b = { .rows = pair_between(p, 1, 1 << 20), .width = c.out };
    const struct fourier_dims f = { .batch = c.batch, .height = 64, .width = 128 };
    ASSERT_SAME(p, k->convolution_workspace(k, &c));
    ASSERT_SAME(p, k->batchnorm_workspace(k, &b));
    ASSERT_SAME(p, k->fourier_workspace(k, &f));
}

CASE(linear_layers_norms_and_embeddings_ask_for_what_was_described, linear_case)
CASE(attention_asks_for_what_was_described, attention_case)
CASE(convolutions_batch_norm_and_fourier_steps_ask_for_what_was_described, image_case)

static void the_cpu_is_not_described(void **state) {
    (void)state;
    assert_null(kernels_shape_only(&(struct kernels_config){ .device = "cpu", .threads = 1 }));
    assert_null(
        kernels_shape_only(&(struct kernels_config){ .device = "cuda", .precision = (enum kernels_precision)3 }));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layers_norms_and_embeddings_ask_for_what_was_described),
        cmocka_unit_test(attention_asks_for_what_was_described),
        cmocka_unit_test(convolutions_batch_norm_and_fourier_steps_ask_for_what_was_described),
        cmocka_unit_test(the_cpu_is_not_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
