/* Kernels of any size start. A device refuses a grid of more than 65,535 blocks in y or z, and so does the shim, which
 * only checks the grids here. */
#include "tests/kernels/cuda/pair.h"

#include "kernels/cuda/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* LONG exceeds 4 * 65,535 positions, because attention has four positions in a block. WIDE exceeds any vocabulary. */
enum { LONG = 1 << 20, WIDE = 1 << 20 };

/* Calls the CUDA tables only. */
#define ON_DEVICES(p, call)                                                                                            \
    for (int s = ONE; s < SIDES; s++) {                                                                                \
        const struct kernels *k = (p)->k[s];                                                                           \
        OK(call);                                                                                                      \
    }

/* Addresses that no kernel reads here: on a boundary, and off it. */
static void *const at_64 = (void *)64;
static void *const at_68 = (void *)68;

static void attention_case(struct pair *p) {
    const struct attention_dims d = {
        .batch = 2, .time = LONG, .heads = 4, .kv_heads = 2, .head = pair_either(p) ? 64 : 5, .causal = true
    };
    const struct rope rope = { .theta = 10000 };
    const struct dropout none = { .probability = 0 };
    for (int i = 0; i < 2; i++) {
        void *const at = i ? at_68 : at_64;
        ON_DEVICES(p, k->attention_forward(k, at, at, at, &d, &none, at, e));
        ON_DEVICES(p, k->attention_backward(k, at, at, at, at, at, &d, &none, at, e));
    }
    if (d.head % 2 == 0)
        ON_DEVICES(p, k->rope(k, at_64, at_64, &d, &rope, false, e));
}
CASE(attention_over_a_million_positions_starts, attention_case)

static void rows_case(struct pair *p) {
    const struct linear_dims l = { .rows = LONG, .in = 8, .out = WIDE };
    const struct batchnorm_dims b = { .rows = LONG, .width = 2048, .epsilon = 1e-5F };
    ON_DEVICES(p, k->linear_backward_bias(k, at_64, at_64, at_64, &l, false, at_64, e));
    ON_DEVICES(p, k->embedding_forward(k, at_64, at_64, at_64, at_64, 64, LONG / 64, 1024, WIDE, e));
    ON_DEVICES(
        p, k->embedding_backward(k, at_64, at_64, at_64, at_64, 64, LONG / 64, 1024, WIDE, LONG / 64, false, at_64, e));
    ON_DEVICES(p, k->layernorm_forward(k, at_64, at_64, at_64, at_64, at_64, NULL, at_64, at_64, LONG, WIDE, 1e-5F, e));
    ON_DEVICES(p, k->rmsnorm_backward(k, at_64, at_64, at_64, NULL, at_64, at_64, at_64, LONG, 1024, false, at_64, e));
    ON_DEVICES(p, k->batchnorm_forward(k, at_64, at_64, at_64, at_64, NULL, at_64, at_64, &b, at_64, e));
    ON_DEVICES(p, k->batchnorm_backward(k, at_64, NULL, at_64, at_64, at_64, at_64, at_64, at_64, at_64, at_64, at_64,
                                        at_64, &b, false, at_64, e));
}
CASE(sums_over_a_million_rows_start, rows_case)

static void elements_case(struct pair *p) {
    const int64_t n = (int64_t)LONG * LONG;
    ON_DEVICES(p, k->gelu_forward(k, at_64, at_64, n, e));
    ON_DEVICES(p, k->add(k, at_64, at_64, at_64, n, e));
    ON_DEVICES(p, k->swiglu_forward(k, at_64, at_64, LONG, LONG, e));
    ON_DEVICES(p, k->convert(k, at_64, at_64, n, e));
    ON_DEVICES(p, k->sum_squares(k, &(struct norm_span){ at_64, at_64, n }, 1, e));
    ON_DEVICES(p, k->channels_last(k, at_64, at_64, LONG, 2048, 64, e));
    ON_DEVICES(p, k->average_pool_forward(k, at_64, at_64, LONG, 49, 2048, e));
}
CASE(a_terabyte_of_elements_starts, elements_case)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_a_million_positions_starts),
        cmocka_unit_test(sums_over_a_million_rows_start),
        cmocka_unit_test(a_terabyte_of_elements_starts),
    };
    shim_only_grids(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
