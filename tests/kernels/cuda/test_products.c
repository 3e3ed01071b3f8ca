/* Linear layers, attention and convolutions of CUDA against the plain ones. On the shim only the project's own kernels
 * run, with products_shim.c for cuBLASLt and cudnn_shim.c for cuDNN. The matrix units are those of
 * shim/kernels/cuda/mma.cuh. */
#include "tests/kernels/cuda/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Copies the CPU's results to every side, so that the next op is compared by itself. */
static void share(const struct twin *t) {
    for (int s = ONE; s < SIDES; s++)
        memcpy(t->at[s], t->at[CPU], (size_t)t->n * t->each);
}

/* --- linear ---*/

/* At least four results: a single sum may be near 0, and then the size of its terms is unknown. */

static void linear_case(struct pair *p) {
    const bool gelu = pair_either(p), accumulate = pair_either(p);
    struct linear_dims d = { .rows = pair_between(p, 4, 20),
                             .in = pair_between(p, 1, 40),
                             .out = pair_between(p, 4, 40),
                             .transposed = pair_either(p) };
    d.y_stride = !gelu && pair_either(p) ? d.out + 3 : 0;
    const int64_t stride = d.y_stride ? d.y_stride : d.out;
    struct twin *x = pair_elements(p, d.rows * d.in, 1), *w = pair_elements(p, d.in * d.out, 1),
                *bias = pair_either(p) ? pair_elements(p, d.out, 1) : NULL, *y = pair_elements(p, d.rows * stride, 1),
                *pre = gelu ? pair_empty(p, d.rows * d.out) : NULL, *dx = pair_elements(p, d.rows * d.in, 1),
                *dw = pair_gradient(p, d.in * d.out, accumulate);
    ON_ALL(p, k->linear_forward(k, y->at[s], pre ? pre->at[s] : NULL, x->at[s], w->at[s], bias ? bias->at[s] : NULL, &d,
                                e));
    pair_close(p, "y", y, 4);
    if (pre)
        pair_close(p, "pre", pre, 4);
    share(y);
    ON_ALL(p, k->linear_backward_input(k, dx->at[s], y->at[s], w->at[s], &d, accumulate, e));
    pair_close(p, "dx", dx, 4);
    ON_ALL(p, k->linear_backward_weight(k, dw->at[s], x->at[s], y->at[s], &d, accumulate,
                                        pair_workspace(p, s, k->linear_backward_weight_workspace(k, &d)), e));
    pair_close(p, "dw", dw, 8);
}
CASE(linear_layers_are_the_cpus_in_every_precision, linear_case)

/* --- attention ---*/

/* Few heads and positions, because the shim is slow. `units` selects a shape for the matrix units, whose second tile
 * begins at 64. */
static struct attention_dims attention_dims(struct pair *p, bool units) {
    static const int64_t heads[] = { 64, 40, 8, 128, 96, 5, 33, 136 };
    struct attention_dims d = { .batch = 1,
                                .time = pair_between(p, 1, 12),
                                .kv_heads = 1,
                                .head = heads[pair_between(p, 0, units ? 4 : 7)],
                                .causal = pair_either(p) };
    if (units && pair_either(p))
        d.time = pair_between(p, 60, 75);
    if (pair_either(p))
        d.kv_heads = 2;
    else
        d.batch = pair_between(p, 1, 2);
    d.heads = d.kv_heads * pair_between(p, 1, 2);
    return d;
}

/* An array has EXTRA more elements than are used, so that `from` can begin it on a 16-byte boundary. */
enum { EXTRA = 8 };
static struct twin *elements(struct pair *p, int64_t n) { return pair_elements(p, n + EXTRA, 1); }
static void *from(const struct twin *t, int s, bool on_boundary) {
    const uintptr_t at = (uintptr_t)t->at[s];
    return (void *)(on_boundary ? (at + 15) & ~(uintptr_t)15 : at);
}

static void attention_case(struct pair *p) {
    const bool units = p->precision != KERNELS_FP32 && pair_between(p, 0, 2) > 0;
    const struct attention_dims d = attention_dims(p, units);
    struct dropout dropout = { .probability = pair_either(p) ? 0.25F : 0,
                               .key = { .seed = (uint64_t)pair_between(p, 0, 1 << 30) << 20, .op = 42 },
                               .first_sample = pair_between(p, 0, 100) };
    struct twin *step = pair_word(p, pair_between(p, 0, 1000000));
    const int64_t packed = d.batch * d.time * (d.heads + 2 * d.kv_heads) * d.head,
                  plain = d.batch * d.time * d.heads * d.head;
    struct twin *qkv = elements(p, packed), *out = elements(p, plain), *dout = elements(p, plain),
                *dqkv = elements(p, packed), *lse = pair_empty_floats(p, d.batch * d.heads * d.time);
    ON_ALL(p, (dropout.key.step = step->at[s],
               k->attention_forward(k, from(out, s, units), lse->at[s], from(qkv, s, units), &d, &dropout,
                                    pair_workspace(p, s, k->attention_workspace(k, &d)), e)));
    /* Probabilities are rounded to elements before they are multiplied with the values. */
    pair_close(p, "out", out, 12);
    pair_close(p, "lse", lse, 8);
    share(out);
    share(lse);
    ON_ALL(p, (dropout.key.step = step->at[s],
               k->attention_backward(k, from(dqkv, s, units), from(dout, s, units), from(qkv, s, units),
                                     from(out, s, units), lse->at[s], &d, &dropout,
                                     pair_workspace(p, s, k->attention_workspace(k, &d)), e)));
    pair_close(p, "dqkv", dqkv, 16);
}
CASE(attention_is_the_cpus_in_every_precision, attention_case)

/* --- convolution ---*/

static void convolution_case(struct pair *p) {
    const bool accumulate = pair_either(p);
    struct convolution_dims d = { .batch = pair_between(p, 1, 3),
                                  .height = pair_between(p, 3, 9),
                                  .width = pair_between(p, 3, 9),
                                  .in = pair_between(p, 1, 17),
                                  .out = pair_between(p, 4, 9),
                                  .kernel = pair_between(p, 1, 3),
                                  .stride = pair_between(p, 1, 2) };
    d.padding = pair_between(p, 0, d.kernel - 1);
    const int64_t n = d.batch * d.height * d.width * d.in, weights = d.out * d.in * d.kernel * d.kernel,
                  m = d.batch * convolution_side(&d, d.height) * convolution_side(&d, d.width) * d.out;
    struct twin *x = pair_elements(p, n, 1), *w = pair_elements(p, weights, 1),
                *bias = pair_either(p) ? pair_elements(p, d.out, 1) : NULL, *y = pair_empty(p, m),
                *dx = accumulate ? pair_elements(p, n, 1) : pair_empty(p, n),
                *dw = pair_gradient(p, weights, accumulate);
    ON_ALL(p, k->convolution_forward(k, y->at[s], x->at[s], w->at[s], bias ? bias->at[s] : NULL, &d,
                                     pair_workspace(p, s, k->convolution_workspace(k, &d)), e));
    pair_close(p, "y", y, 4);
    share(y);
    ON_ALL(p, k->convolution_backward_input(k, dx->at[s], y->at[s], w->at[s], &d, accumulate,
                                            pair_workspace(p, s, k->convolution_workspace(k, &d)), e));
    pair_close(p, "dx", dx, 4);
    ON_ALL(p, k->convolution_backward_weight(k, dw->at[s], x->at[s], y->at[s], &d, accumulate,
                                             pair_workspace(p, s, k->convolution_workspace(k, &d)), e));
    pair_close_elements(p, "dw", dw, 4); /* cuDNN's gradients of weights */
}
CASE(convolutions_are_the_cpus_in_every_precision, convolution_case)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layers_are_the_cpus_in_every_precision),
        cmocka_unit_test(attention_is_the_cpus_in_every_precision),
        cmocka_unit_test(convolutions_are_the_cpus_in_every_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
