/* A product as cuBLASLt wants it told: an operation and four matrices. Needs no device.
 *
 * cuBLASLt counts by columns, where a row-major matrix reads as its transpose: C^T = B^T A^T is asked for, with our B
 * as its first operand. A bias of our columns is then one of its rows, as its epilogue has it. */
#ifndef KERNELS_CUDA_PRODUCT_LAYOUT_H
#define KERNELS_CUDA_PRODUCT_LAYOUT_H

#include "kernels/cuda/gemm.h"

#include <cublasLt.h>

struct product_layout {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, c; /* our B, our A, our C */
};

MUST_CHECK status_t product_layout_new(const struct gemm *p, struct product_layout *ret, struct err *e);
void product_layout_done(struct product_layout *l);

/* cublasStatus_t as ours: NOT_SUPPORTED is UNIMPLEMENTED. */
MUST_CHECK status_t product_status(cublasStatus_t st, const char *what, struct err *e);

#endif
