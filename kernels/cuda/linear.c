#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.h"

#include <assert.h>

static int64_t y_stride(const struct linear_dims *d) { return d->y_stride ? d->y_stride : d->out; }

/* The GELU is a part of the product where cuBLASLt can keep what goes into it, else a pass of its own. */
status_t cuda_linear_forward(const struct kernels *k, element_t *y, element_t *pre, const element_t *x,
                             const element_t *w, const element_t *bias, const struct linear_dims *d, struct err *e) {
    assert(d->rows > 0 && d->in > 0 && d->out > 0);
    assert(!pre || y_stride(d) == d->out);
    struct gemm_product p = { .m = d->rows,
                              .n = d->out,
                              .k = d->in,
                              .lda = d->in,
                              .ldb = d->transposed ? d->in : d->out,
                              .ldc = y_stride(d),
                              .flags = (d->transposed ? GEMM_B_TRANSPOSED : 0u) | (bias ? GEMM_BIAS : 0u) };
    if (!pre)
        return cuda_products_run(k, p, y, NULL, x, w, bias, e);
    p.flags |= GEMM_GELU;
    const status_t st = cuda_products_run(k, p, y, pre, x, w, bias, e);
    if (st != ST_UNIMPLEMENTED)
        return st;
    p.flags &= ~(unsigned)GEMM_GELU;
    TRY(cuda_products_run(k, p, pre, NULL, x, w, bias, e));
    return k->gelu_forward(k, y, pre, d->rows * d->out, e);
}

status_t cuda_linear_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                                    const struct linear_dims *d, bool accumulate, struct err *e) {
    const struct gemm_product p = { .m = d->rows,
                                    .n = d->in,
                                    .k = d->out,
                                    .lda = y_stride(d),
                                    .ldb = d->transposed ? d->in : d->out,
                                    .ldc = d->in,
                                    .flags = (d->transposed ? 0u : GEMM_B_TRANSPOSED) |
                                             (accumulate ? GEMM_ACCUMULATE : 0u) };
    return cuda_products_run(k, p, dx, NULL, dy, w, NULL, e);
}

status_t cuda_linear_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                     const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    (void)workspace;
    const struct gemm_product p = { .m = d->transposed ? d->out : d->in,
                                    .n = d->transposed ? d->in : d->out,
                                    .k = d->rows,
                                    .lda = d->transposed ? y_stride(d) : d->in,
                                    .ldb = d->transposed ? d->in : y_stride(d),
                                    .ldc = d->transposed ? d->in : d->out,
                                    .flags = GEMM_A_TRANSPOSED | GEMM_C_FP32 | (accumulate ? GEMM_ACCUMULATE : 0u) };
    return cuda_products_run(k, p, dw, NULL, d->transposed ? dy : x, d->transposed ? x : dy, NULL, e);
}

size_t cuda_linear_backward_weight_workspace(const struct kernels *k, const struct linear_dims *d) {
    (void)k, (void)d;
    return 0;
}

status_t cuda_record(const struct kernels *k, char **ret, struct err *e) {
    return cuda_products_record(cuda_of(k)->products, ret, e);
}
