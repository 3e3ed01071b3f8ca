/* The descriptors that cuBLASLt receives for a product, without a device: a product computed by columns, as the
 * descriptors specify, equals ours, and cuBLASLt accepts the descriptors of every linear layer of known models. */
#include "kernels/cuda/lib/product.h"
#include "kernels/cuda/lib/product_layout.h"
#include "kernels/cuda/ops.h"
#include "tests/kernels/cuda/presets.h"
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct matrix {
    uint64_t rows, columns;
    int64_t stride;
    bool transposed;
    float *at;
};

static struct matrix matrix_of(cublasLtMatrixLayout_t layout, bool transposed, float *at) {
    struct matrix m = { .transposed = transposed, .at = at };
    size_t n;
    assert_int_equal(cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &m.rows, sizeof m.rows, &n),
                     0);
    assert_int_equal(
        cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &m.columns, sizeof m.columns, &n), 0);
    assert_int_equal(
        cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_LD, &m.stride, sizeof m.stride, &n), 0);
    return m;
}

static float element(const struct matrix *m, uint64_t row, uint64_t column) {
    return m->transposed ? m->at[(int64_t)row * m->stride + (int64_t)column]
                         : m->at[(int64_t)column * m->stride + (int64_t)row];
}

static bool transposes(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name) {
    cublasOperation_t op;
    size_t n;
    assert_int_equal(cublasLtMatmulDescGetAttribute(operation, name, &op, sizeof op, &n), 0);
    return op == CUBLAS_OP_T;
}

/* The product as cuBLASLt documents it: D = op(A) op(B), by columns. A bias is added to each row. */
static void by_columns(const struct gemm *p, float *c, float *a, float *b, const float *bias) {
    struct product_layout l;
    OK(product_layout_new(p, &l, e));
    const struct matrix first = matrix_of(l.first, transposes(l.operation, CUBLASLT_MATMUL_DESC_TRANSA), b),
                        second = matrix_of(l.second, transposes(l.operation, CUBLASLT_MATMUL_DESC_TRANSB), a),
                        result = matrix_of(l.c, false, c);
    const uint64_t depth = first.transposed ? first.rows : first.columns;
    assert_int_equal(depth, second.transposed ? second.columns : second.rows);
    assert_int_equal(result.rows, first.transposed ? first.columns : first.rows);
    assert_int_equal(result.columns, second.transposed ? second.rows : second.columns);
    for (uint64_t column = 0; column < result.columns; column++)
        for (uint64_t row = 0; row < result.rows; row++) {
            float sum = bias ? bias[row] : 0;
            for (uint64_t i = 0; i < depth; i++)
                sum += element(&first, row, i) * element(&second, i, column);
            c[(int64_t)column * result.stride + (int64_t)row] = sum;
        }
    product_layout_done(&l);
}

static void by_rows(const struct gemm *p, float *c, const float *a, const float *b, const float *bias) {
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            float sum = bias ? bias[j] : 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += (p->flags & GEMM_A_TRANSPOSED ? a[k * p->lda + i] : a[i * p->lda + k]) *
                       (p->flags & GEMM_B_TRANSPOSED ? b[j * p->ldb + k] : b[k * p->ldb + j]);
            c[i * p->ldc + j] = sum;
        }
}

static void a_product_by_columns_is_ours(void **state) {
    (void)state;
    enum { M = 5, N = 7, K = 3, ROOM = 200 };
    float *a = tensor_random(ROOM, 1, 1), *b = tensor_random(ROOM, 2, 1), *bias = tensor_random(N, 3, 1);
    for (unsigned flags = 0; flags < 4; flags++)
        for (unsigned with = 0; with < 2; with++) {
            const struct gemm p = { .precision = KERNELS_FP32,
                                    .m = M,
                                    .n = N,
                                    .k = K,
                                    .lda = (flags & GEMM_A_TRANSPOSED ? M : K) + 2,
                                    .ldb = (flags & GEMM_B_TRANSPOSED ? K : N) + 1,
                                    .ldc = N + 3,
                                    .alignment = 4,
                                    .flags = flags | (with ? GEMM_BIAS : 0u) };
            float *got = tensor_random(ROOM, 4, 1), *want = tensor_random(ROOM, 4, 1);
            by_columns(&p, got, a, b, with ? bias : NULL);
            by_rows(&p, want, a, b, with ? bias : NULL);
            tensor_assert_same_bits("product", got, want, ROOM);
            free(got);
            free(want);
        }
    free(a);
    free(b);
    free(bias);
}

/* linear.c calls these for its products. */
static int described;
status_t cuda_products_run(const struct kernels *k, struct gemm p, void *c, element_t *pre, const element_t *a,
                           const element_t *b, const element_t *bias, struct err *e) {
    (void)c, (void)a, (void)b;
    struct product_layout l;
    assert_int_equal(pre != NULL, (p.flags & GEMM_GELU) != 0);
    assert_int_equal(bias != NULL, (p.flags & GEMM_BIAS) != 0);
    assert_true(!pre || (p.ldc % 8 == 0 && (uintptr_t)pre % 16 == 0)); /* as its manual asks of EPILOGUE_AUX */
    p.precision = k->precision;
    p.alignment = 16;
    TRY(product_layout_new(&p, &l, e));
    product_layout_done(&l);
    described++;
    return ST_OK;
}

/* Counts the passes of gelu that linear.c runs if the product does not compute gelu itself. */
static int passes;
static status_t gelu_pass(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    (void)k, (void)y, (void)x, (void)n, (void)e;
    passes++;
    return ST_OK;
}

static void all_products(const struct kernels *k, const struct linear_dims *d) {
    alignas(16) char x[8];
    char bias[1];
    OK(cuda_linear_forward(k, x, NULL, x, x, NULL, d, e));
    OK(cuda_linear_forward(k, x, NULL, x, x, bias, d, e));
    if (!d->y_stride || d->y_stride == d->out)
        for (int off = 0; off <= 4; off += 4) {
            passes = 0;
            OK(cuda_linear_forward(k, x, x + off, x, x, bias, d, e));
            assert_int_equal(passes, d->out % 8 != 0 || off != 0);
        }
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        OK(cuda_linear_backward_input(k, x, x, x, d, accumulate, e));
        OK(cuda_linear_backward_weight(k, (float *)(void *)x, x, x, d, accumulate, NULL, e));
    }
}

static void every_product_of_known_models_can_be_described(void **state) {
    (void)state;
    described = 0;
    for (int p = 0; p < preset_count(); p++) {
        struct preset_shapes s;
        preset_shapes(p, &s);
        for (int precision = KERNELS_FP32; precision <= KERNELS_FP16; precision++) {
            const struct cuda device = { .table = { .precision = (enum kernels_precision)precision,
                                                    .gelu_forward = gelu_pass } };
            for (int i = 0; i < s.n_linear; i++)
                all_products(&device.table, &s.linear[i]);
        }
    }
    print_message("%d products described to cuBLASLt %zu\n", described, cublasLtGetVersion());
    assert_true(described > 300);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_by_columns_is_ours),
        cmocka_unit_test(every_product_of_known_models_can_be_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
