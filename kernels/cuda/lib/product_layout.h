/* A product as descriptors of cuBLASLt: an operation and four matrices. Needs no device.
 *
 * cuBLASLt uses column-major order, in which a row-major matrix is its transpose. So the request is C^T = B^T A^T,
 * with our B as the first operand. A bias of our columns is then a bias of its rows, which its epilogue supports. */
#ifndef KERNELS_CUDA_PRODUCT_LAYOUT_H
#define KERNELS_CUDA_PRODUCT_LAYOUT_H

#include "kernels/cuda/lib/gemm.h"

#include <cublasLt.h>

struct product_layout {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, c; /* our B, our A, our C */
};

MUST_CHECK status_t product_layout_new(const struct gemm *p, struct product_layout *ret, struct err *e);
void product_layout_done(struct product_layout *l);

/* Converts a cublasStatus_t. NOT_SUPPORTED becomes UNIMPLEMENTED. */
MUST_CHECK status_t product_status(cublasStatus_t st, const char *what, struct err *e);

#endif
