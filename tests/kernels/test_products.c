/* Linear layers: right at odd shapes, the same bits for any number of threads at the shapes that models use.
 * Compiled once for each TEST_ISA: oneDNN's own instruction set is chosen once in a process. */
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct layer {
    struct linear_dims d;
    bool bias, gelu;
};

static const struct layer ODD[] = {
    { { 1, 1, 1, false }, true, false },       { { 3, 5, 7, false }, true, true },
    { { 17, 33, 65, true }, false, false },    { { 64, 1, 64, false }, true, false },
    { { 5, 300, 3, true }, true, false },      { { 4000, 8, 8, false }, true, true },
    { { 3073, 16, 24, true }, false, false },  { { 130, 96, 131, false }, true, true },
    { { 2048, 20, 30, false }, false, false }, { { 1, 4000, 9, false }, true, false },
    { { 2, 9000, 5, true }, true, false },     { { 1537, 129, 63, true }, true, false },
};

/* nanoGPT 4 x 128 on 6 x 64 tokens, 6 x 384 on 12 x 256, GPT-2 124M on 4 x 64; the heads without a bias, transposed. */
static const struct layer MODELS[] = {
    { { 384, 128, 384, false }, true, false },   { { 384, 128, 128, false }, true, false },
    { { 384, 128, 512, false }, true, true },    { { 384, 512, 128, false }, true, false },
    { { 384, 128, 65, true }, false, false },    { { 3072, 384, 1152, false }, true, false },
    { { 3072, 384, 384, false }, true, false },  { { 3072, 384, 1536, false }, true, true },
    { { 3072, 1536, 384, false }, true, false }, { { 3072, 384, 65, true }, false, false },
    { { 256, 768, 2304, false }, true, false },  { { 256, 768, 768, false }, true, false },
    { { 256, 768, 3072, false }, true, true },   { { 256, 3072, 768, false }, true, false },
    { { 100000, 8, 8, false }, true, false },    { { 30000, 16, 16, true }, false, false },
};
static const struct layer GPT2_HEAD = { { 256, 768, 50257, true }, false, false };

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

struct result {
    float *y, *pre, *dy, *dbias, *dx, *dw;
};

static void result_free(struct result *r) {
    free(r->y), free(r->pre), free(r->dy), free(r->dbias), free(r->dx), free(r->dw);
}

static struct result run(const struct layer *l, enum kernels_isa isa, int threads) {
    const int64_t rows = l->d.rows, in = l->d.in, out = l->d.out;
    CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa, threads);
    CLEANUP(freep) float *x = tensor_random(rows * in, 1, 1), *w = tensor_random(in * out, 2, 0.2f);
    CLEANUP(freep) float *bias = tensor_random(out, 3, 1);
    const size_t a = k->linear_backward_bias_workspace(k, &l->d), b = k->linear_backward_weight_workspace(k, &l->d);
    CLEANUP(freep) float *workspace = tensor_new((int64_t)((a > b ? a : b) / sizeof(float)));
    struct result r = { .y = tensor_new(rows * out),
                        .pre = l->gelu ? tensor_new(rows * out) : NULL,
                        .dy = tensor_random(rows * out, 4, 1),
                        .dbias = tensor_random(out, 5, 1),
                        .dx = tensor_random(rows * in, 6, 1),
                        .dw = tensor_random(in * out, 7, 1) };
    OK(k->linear_forward(k, r.y, r.pre, x, w, l->bias ? bias : NULL, &l->d, e));
    OK(k->linear_backward_bias(k, l->bias ? r.dbias : NULL, r.dy, r.pre, &l->d, true, workspace, e));
    OK(k->linear_backward_input(k, r.dx, r.dy, w, &l->d, true, e));
    OK(k->linear_backward_weight(k, r.dw, x, r.dy, &l->d, true, workspace, e));
    return r;
}

static double *widened(const float *a, int64_t n) {
    double *b = malloc((size_t)n * sizeof *b);
    for (int64_t i = 0; i < n; i++)
        b[i] = a[i];
    return b;
}

/* c (m, n) += a (m, k) b (k, n) in double; strides in elements. */
static void product(double *c, const float *a, int64_t a_row, int64_t a_column, const float *b, int64_t b_row,
                    int64_t b_column, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < k; l++)
                c[i * n + j] += (double)a[i * a_row + l * a_column] * b[l * b_row + j * b_column];
}

static void check(const struct layer *l, const struct result *r) {
    const int64_t rows = l->d.rows, in = l->d.in, out = l->d.out;
    const int64_t w_row = l->d.transposed ? 1 : out, w_column = l->d.transposed ? in : 1;
    CLEANUP(freep) float *x = tensor_random(rows * in, 1, 1), *w = tensor_random(in * out, 2, 0.2f);
    CLEANUP(freep) float *bias = tensor_random(out, 3, 1), *bias0 = tensor_random(out, 5, 1);
    CLEANUP(freep) float *dx0 = tensor_random(rows * in, 6, 1), *dw0 = tensor_random(in * out, 7, 1);
    CLEANUP(freep) double *y = calloc((size_t)(rows * out), sizeof *y), *db = widened(bias0, out);
    CLEANUP(freep) double *dx = widened(dx0, rows * in), *dw = widened(dw0, in * out);
    product(y, x, in, 1, w, w_row, w_column, rows, out, in);
    for (int64_t i = 0; i < rows * out; i++) {
        y[i] += l->bias ? bias[i % out] : 0;
        db[i % out] += r->dy[i];
    }
    tensor_assert_near("y", l->gelu ? r->pre : r->y, y, rows * out, 1e-5, 1);
    if (l->bias)
        tensor_assert_near("dbias", r->dbias, db, out, 1e-5, 10);
    product(dx, r->dy, out, 1, w, w_column, w_row, rows, in, out);
    tensor_assert_near("dx", r->dx, dx, rows * in, 1e-5, 1);
    if (l->d.transposed)
        product(dw, r->dy, 1, out, x, in, 1, out, in, rows);
    else
        product(dw, x, 1, in, r->dy, out, 1, in, out, rows);
    tensor_assert_near("dw", r->dw, dw, in * out, 1e-5, 20);
}

static void linear_agrees_with_double_at_odd_shapes(void **state) {
    (void)state;
    static const enum kernels_isa isas[] = { KERNELS_ISA_PLAIN, TEST_ISA };
    for (int isa = 0; isa < COUNT(isas); isa++)
        for (int i = 0; i < COUNT(ODD); i++) {
            struct result r = run(&ODD[i], isas[isa], 2);
            check(&ODD[i], &r);
            result_free(&r);
        }
}

static void same_bits(const struct layer *l, enum kernels_isa isa) {
    const int64_t rows = l->d.rows, in = l->d.in, out = l->d.out;
    struct result one = run(l, isa, 1);
    for (int threads = 2; threads <= 4; threads *= 2) {
        struct result more = run(l, isa, threads);
        tensor_assert_same_bits("y", one.y, more.y, rows * out);
        tensor_assert_same_bits("dy", one.dy, more.dy, rows * out);
        tensor_assert_same_bits("dbias", one.dbias, more.dbias, out);
        tensor_assert_same_bits("dx", one.dx, more.dx, rows * in);
        tensor_assert_same_bits("dw", one.dw, more.dw, in * out);
        result_free(&more);
    }
    result_free(&one);
}

static void linear_has_the_same_bits_for_1_2_and_4_threads(void **state) {
    (void)state;
    for (int i = 0; i < COUNT(MODELS); i++)
        same_bits(&MODELS[i], TEST_ISA);
    for (int i = 0; i < COUNT(ODD); i++) {
        same_bits(&ODD[i], TEST_ISA);
        same_bits(&ODD[i], KERNELS_ISA_PLAIN);
    }
}

static void the_head_of_gpt2_has_the_same_bits_for_1_2_and_4_threads(void **state) {
    (void)state;
    same_bits(&GPT2_HEAD, TEST_ISA);
}

/* More shapes than the cache holds: each is still computed right, on its first use and on the next one. */
static void a_full_cache_forgets_the_oldest_product_and_computes_on(void **state) {
    (void)state;
    CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(TEST_ISA, 1);
    const int64_t most = KERNELS_PRODUCTS_MOST + 20;
    CLEANUP(freep) float *x = tensor_random(4 * most, 1, 1), *w = tensor_random(most, 2, 1), *y = tensor_new(4);
    for (int round = 0; round < 2; round++)
        for (int64_t in = 1; in <= most; in++) {
            double want[4] = { 0 };
            product(want, x, in, 1, w, 1, 1, 4, 1, in);
            OK(k->linear_forward(k, y, NULL, x, w, NULL, &(struct linear_dims){ .rows = 4, .in = in, .out = 1 }, e));
            tensor_assert_near("y", y, want, 4, 1e-5, 1);
        }
}

int main(void) {
    CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(TEST_ISA, 1);
    if (!k)
        return 77; /* ctest: skipped */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_agrees_with_double_at_odd_shapes),
        cmocka_unit_test(linear_has_the_same_bits_for_1_2_and_4_threads),
        cmocka_unit_test(the_head_of_gpt2_has_the_same_bits_for_1_2_and_4_threads),
        cmocka_unit_test(a_full_cache_forgets_the_oldest_product_and_computes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
