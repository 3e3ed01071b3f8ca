/* Linear layers: correct at odd shapes, and the same bits for any number of threads at the shapes of models, also when
 * a table's team changes. Compiled once for each TEST_ISA, because oneDNN chooses its own instruction set once in a
 * process. */
#include "tests/kernels/tensor.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct layer {
    struct linear_dims d;
    bool bias, gelu;
};

static const struct layer ODD[] = {
    { { 1, 1, 1, false, 0 }, true, false },       { { 3, 5, 7, false, 0 }, true, true },
    { { 17, 33, 65, true, 0 }, false, false },    { { 64, 1, 64, false, 0 }, true, false },
    { { 5, 300, 3, true, 0 }, true, false },      { { 4000, 8, 8, false, 0 }, true, true },
    { { 3073, 16, 24, true, 0 }, false, false },  { { 130, 96, 131, false, 0 }, true, true },
    { { 2048, 20, 30, false, 0 }, false, false }, { { 1, 4000, 9, false, 0 }, true, false },
    { { 2, 9000, 5, true, 0 }, true, false },     { { 1537, 129, 63, true, 0 }, true, false },
};

/* nanoGPT 4 x 128 on 6 x 64 tokens, 6 x 384 on 12 x 256, GPT-2 124M on 4 x 64. The heads have no bias and are
 * transposed. */
static const struct layer MODELS[] = {
    { { 384, 128, 384, false, 0 }, true, false },   { { 384, 128, 128, false, 0 }, true, false },
    { { 384, 128, 512, false, 0 }, true, true },    { { 384, 512, 128, false, 0 }, true, false },
    { { 384, 128, 65, true, 0 }, false, false },    { { 3072, 384, 1152, false, 0 }, true, false },
    { { 3072, 384, 384, false, 0 }, true, false },  { { 3072, 384, 1536, false, 0 }, true, true },
    { { 3072, 1536, 384, false, 0 }, true, false }, { { 3072, 384, 65, true, 0 }, false, false },
    { { 256, 768, 2304, false, 0 }, true, false },  { { 256, 768, 768, false, 0 }, true, false },
    { { 256, 768, 3072, false, 0 }, true, true },   { { 256, 3072, 768, false, 0 }, true, false },
    { { 100000, 8, 8, false, 0 }, true, false },    { { 30000, 16, 16, true, 0 }, false, false },
};
enum { SMALL_MODELS = 5 }; /* in MODELS: the layers of nanoGPT 4 x 128 */
/* Without AVX-512 a bf16 product converts tiles to fp32, so small shapes are enough. */
enum { BF16_IS_FP32 = TEST_ISA == KERNELS_ISA_AVX2 };
static const struct layer GPT2_HEAD = { { 256, 768, SANITIZED ? 5025 : 50257, true, 0 }, false, false };

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

struct result {
    float *y, *pre, *dy, *dbias, *dx, *dw;
};

static void result_free(struct result *r) {
    free(r->y), free(r->pre), free(r->dy), free(r->dbias), free(r->dx), free(r->dw);
}

/* All results as fp32, which holds elements exactly. */
static struct result run_on(const struct kernels *k, const struct layer *l) {
    const int64_t rows = l->d.rows, in = l->d.in, out = l->d.out;
    CLEANUP(freep) element_t *x = elements_random(k, rows * in, 1, 1), *w = elements_random(k, in * out, 2, 0.2f);
    CLEANUP(freep) element_t *bias = elements_random(k, out, 3, 1), *dy = elements_random(k, rows * out, 4, 1);
    CLEANUP(freep) element_t *y = elements_new(k, rows * out), *pre = l->gelu ? elements_new(k, rows * out) : NULL;
    CLEANUP(freep) element_t *dx = elements_random(k, rows * in, 6, 1);
    const size_t a = k->linear_backward_bias_workspace(k, &l->d), b = k->linear_backward_weight_workspace(k, &l->d);
    CLEANUP(freep) float *workspace = tensor_new((int64_t)((a > b ? a : b) / sizeof(float)));
    struct result r = { .dbias = tensor_random(out, 5, 1), .dw = tensor_random(in * out, 7, 1) };
    OK(k->linear_forward(k, y, pre, x, w, l->bias ? bias : NULL, &l->d, e));
    OK(k->linear_backward_bias(k, l->bias ? r.dbias : NULL, dy, pre, &l->d, true, workspace, e));
    OK(k->linear_backward_input(k, dx, dy, w, &l->d, true, e));
    OK(k->linear_backward_weight(k, r.dw, x, dy, &l->d, true, workspace, e));
    r.y = floats_of(k, y, rows * out);
    r.pre = pre ? floats_of(k, pre, rows * out) : NULL;
    r.dy = floats_of(k, dy, rows * out);
    r.dx = floats_of(k, dx, rows * in);
    return r;
}

static struct result run(const struct layer *l, enum kernels_isa isa, int threads, enum kernels_precision precision) {
    CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa, threads, precision);
    return run_on(k, l);
}

static double *doubles_of(const float *a, int64_t n) {
    double *b = malloc((size_t)n * sizeof *b);
    for (int64_t i = 0; i < n; i++)
        b[i] = a[i];
    return b;
}

/* Computes c (m, n) += a (m, k) b (k, n) in double. Strides are in elements. */
static void product(double *c, const float *a, int64_t a_row, int64_t a_column, const float *b, int64_t b_row,
                    int64_t b_column, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < k; l++)
                c[i * n + j] += (double)a[i * a_row + l * a_column] * b[l * b_row + j * b_column];
}

/* Half a unit in the last place of the stored type. */
static const double ROUNDING[] = { 0, 0x1p-8, 0x1p-11 };

static void check(const struct layer *l, const struct result *r, enum kernels_precision p) {
    const int64_t rows = l->d.rows, in = l->d.in, out = l->d.out;
    const int64_t w_row = l->d.transposed ? 1 : out, w_column = l->d.transposed ? in : 1;
    const double tolerance = 1e-5 + ROUNDING[p];
    CLEANUP(freep) float *x = rounded_random(p, rows * in, 1, 1), *w = rounded_random(p, in * out, 2, 0.2f);
    CLEANUP(freep) float *bias = rounded_random(p, out, 3, 1), *bias0 = tensor_random(out, 5, 1);
    CLEANUP(freep) float *dx0 = rounded_random(p, rows * in, 6, 1), *dw0 = tensor_random(in * out, 7, 1);
    CLEANUP(freep) double *y = calloc((size_t)(rows * out), sizeof *y), *db = doubles_of(bias0, out);
    CLEANUP(freep) double *dx = doubles_of(dx0, rows * in), *dw = doubles_of(dw0, in * out);
    product(y, x, in, 1, w, w_row, w_column, rows, out, in);
    for (int64_t i = 0; i < rows * out; i++) {
        y[i] += l->bias ? bias[i % out] : 0;
        db[i % out] += r->dy[i];
    }
    tensor_assert_near("y", l->gelu ? r->pre : r->y, y, rows * out, tolerance, p ? 0.02 : 1);
    if (l->bias)
        tensor_assert_near("dbias", r->dbias, db, out, 1e-5, 10);
    product(dx, r->dy, out, 1, w, w_column, w_row, rows, in, out);
    tensor_assert_near("dx", r->dx, dx, rows * in, tolerance, p ? 0.02 : 1);
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
        for (int p = KERNELS_FP32; p <= KERNELS_FP16; p++)
            for (int i = 0; i < COUNT(ODD); i++) {
                struct result r = run(&ODD[i], isas[isa], 2, p);
                check(&ODD[i], &r, p);
                result_free(&r);
            }
}

static void same_bits(const struct layer *l, enum kernels_isa isa, enum kernels_precision p) {
    const int64_t rows = l->d.rows, in = l->d.in, out = l->d.out;
    CLEANUP(kernels_closep) struct kernels *k = kernels_of_team(isa, p);
    struct result one = run_on(k, l);
    for (int threads = 2; threads <= 4; threads *= 2) {
        kernels_set_threads(k, threads);
        struct result more = run_on(k, l);
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
    const int most[] = { SANITIZED ? SMALL_MODELS : COUNT(MODELS),
                         SANITIZED || BF16_IS_FP32 ? SMALL_MODELS : COUNT(MODELS) };
    for (int p = KERNELS_FP32; p <= KERNELS_BF16; p++)
        for (int i = 0; i < most[p]; i++)
            same_bits(&MODELS[i], TEST_ISA, p);
    for (int p = KERNELS_FP32; p <= KERNELS_FP16; p++)
        for (int i = 0; i < COUNT(ODD); i++) {
            same_bits(&ODD[i], TEST_ISA, p);
            if (p == KERNELS_FP32)
                same_bits(&ODD[i], KERNELS_ISA_PLAIN, p);
        }
}

static void near(const char *name, const float *have, const float *want, int64_t n) {
    CLEANUP(freep) double *wide = doubles_of(want, n);
    tensor_assert_near(name, have, wide, n, 1e-5, 1);
}

/* Layers that write slices of one packed tensor compute the same bits as each layer alone, and do not change the other
 * slices. */
static void slices_side_by_side_are_whole_layers(void **state) {
    (void)state;
    enum { ROWS = 37, IN = 24, FIRST = 8, SECOND = 17, THIRD = 1, PARTS = 3, STRIDE = FIRST + SECOND + THIRD };
    static const enum kernels_isa isas[] = { KERNELS_ISA_PLAIN, TEST_ISA };
    static const int out[] = { FIRST, SECOND, THIRD }, at[] = { 0, FIRST, FIRST + SECOND };
    for (int i = 0; i < 4; i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isas[i / 2], 2);
        const bool transposed = i % 2;
        CLEANUP(freep) float *x = tensor_random(ROWS * IN, 1, 1), *y = tensor_new(ROWS * STRIDE);
        CLEANUP(freep) float *dx = tensor_random(ROWS * IN, 2, 1), *dx_alone = tensor_random(ROWS * IN, 2, 1);
        for (int part = 0; part < PARTS; part++) {
            struct linear_dims alone = { .rows = ROWS, .in = IN, .out = out[part], .transposed = transposed };
            struct linear_dims slice = alone;
            slice.y_stride = STRIDE;
            CLEANUP(freep) float *w = tensor_random(IN * alone.out, 3 + (uint64_t)part, 1);
            CLEANUP(freep) float *y_alone = tensor_new(ROWS * alone.out), *got = tensor_new(ROWS * alone.out);
            CLEANUP(freep) float *dw = tensor_new(IN * alone.out), *dw_alone = tensor_new(IN * alone.out);
            OK(k->linear_forward(k, y_alone, NULL, x, w, NULL, &alone, e));
            OK(k->linear_forward(k, y + at[part], NULL, x, w, NULL, &slice, e));
            for (int64_t row = 0; row < ROWS; row++)
                memcpy(got + row * alone.out, y + row * STRIDE + at[part], (size_t)alone.out * sizeof *got);
            near("y", got, y_alone, ROWS * alone.out);
            OK(k->linear_backward_input(k, dx_alone, y_alone, w, &alone, true, e));
            OK(k->linear_backward_input(k, dx, y + at[part], w, &slice, true, e));
            near("dx", dx, dx_alone, ROWS * IN);
            OK(k->linear_backward_weight(k, dw_alone, x, y_alone, &alone, false, NULL, e));
            OK(k->linear_backward_weight(k, dw, x, y + at[part], &slice, false, NULL, e));
            near("dw", dw, dw_alone, IN * alone.out);
        }
    }
}

static void the_head_of_gpt2_has_the_same_bits_for_1_2_and_4_threads(void **state) {
    (void)state;
    same_bits(&GPT2_HEAD, TEST_ISA, KERNELS_FP32);
    if (!BF16_IS_FP32)
        same_bits(&GPT2_HEAD, TEST_ISA, KERNELS_BF16);
}

/* More shapes than the cache holds: each is still computed correctly, on its first use and on the next one. */
static void a_full_cache_forgets_the_oldest_product_and_computes_on(void **state) {
    (void)state;
    CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(TEST_ISA, 1);
    const int64_t most = KERNELS_MAX_PRODUCTS + 20;
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
        cmocka_unit_test(slices_side_by_side_are_whole_layers),
        cmocka_unit_test(the_head_of_gpt2_has_the_same_bits_for_1_2_and_4_threads),
        cmocka_unit_test(a_full_cache_forgets_the_oldest_product_and_computes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
