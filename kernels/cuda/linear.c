#include "kernels/cuda/lib/product.h"
#include "kernels/cuda/ops.h"

#include <assert.h>

/* cuBLASLt stores the input of GELU in rows of a multiple of 8 elements, on a 16-byte boundary. */
static bool keeps_pre(const struct linear_dims *d, const element_t *pre) {
    return d->out % 8 == 0 && ((uintptr_t)pre & 15) == 0;
}

/* GELU is part of the product if cuBLASLt can store the GELU's input; otherwise it is a pass of its own. */
status_t cuda_linear_forward(const struct kernels *k, element_t *y, element_t *pre, const element_t *x,
                             const element_t *w, const element_t *bias, const struct linear_dims *d, struct err *e) {
    assert(d->rows > 0 && d->in > 0 && d->out > 0);
    assert(!pre || linear_stride(d) == d->out);
    const struct gemm p = { .m = d->rows,
                            .n = d->out,
                            .k = d->in,
                            .lda = d->in,
                            .ldb = d->transposed ? d->in : d->out,
                            .ldc = linear_stride(d),
                            .flags = (d->transposed ? GEMM_B_TRANSPOSED : 0u) | (bias ? GEMM_BIAS : 0u) };
    if (!pre)
        return cuda_products_run(k, p, y, NULL, x, w, bias, e);
    if (keeps_pre(d, pre)) {
        struct gemm both = p;
        both.flags |= GEMM_GELU;
        const status_t st = cuda_products_run(k, both, y, pre, x, w, bias, e);
        if (st != ST_UNIMPLEMENTED)
            return st;
    }
    TRY(cuda_products_run(k, p, pre, NULL, x, w, bias, e));
    return k->gelu_forward(k, y, pre, d->rows * d->out, e);
}

status_t cuda_linear_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                                    const struct linear_dims *d, bool accumulate, struct err *e) {
    const struct gemm p = { .m = d->rows,
                            .n = d->in,
                            .k = d->out,
                            .lda = linear_stride(d),
                            .ldb = d->transposed ? d->in : d->out,
                            .ldc = d->in,
                            .flags = (d->transposed ? 0u : GEMM_B_TRANSPOSED) | (accumulate ? GEMM_ACCUMULATE : 0u) };
    return cuda_products_run(k, p, dx, NULL, dy, w, NULL, e);
}

status_t cuda_linear_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                     const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    (void)workspace;
    const struct gemm p = { .m = d->transposed ? d->out : d->in,
                            .n = d->transposed ? d->in : d->out,
                            .k = d->rows,
                            .lda = d->transposed ? linear_stride(d) : d->in,
                            .ldb = d->transposed ? d->in : linear_stride(d),
                            .ldc = d->transposed ? d->in : d->out,
                            .flags = GEMM_A_TRANSPOSED | GEMM_C_FP32 | (accumulate ? GEMM_ACCUMULATE : 0u) };
    return cuda_products_run(k, p, dw, NULL, d->transposed ? dy : x, d->transposed ? x : dy, NULL, e);
}
