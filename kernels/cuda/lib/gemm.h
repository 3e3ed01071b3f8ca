/* A matrix product, as callers request it: C (m, n) = A (m, k) B (k, n), row-major. lda, ldb, ldc: elements from one
 * row to the next in memory. */
#ifndef KERNELS_CUDA_GEMM_H
#define KERNELS_CUDA_GEMM_H

#include "kernels/kernels.h"

enum gemm_flag {
    GEMM_A_TRANSPOSED = 1, /* A is stored as (k, m) */
    GEMM_B_TRANSPOSED = 2, /* B is stored as (n, k) */
    GEMM_ACCUMULATE = 4,   /* C += */
    GEMM_C_FP32 = 8,       /* C is fp32 in every precision */
    GEMM_BIAS = 16,        /* + bias (n), added to each row */
    GEMM_GELU = 32,        /* C = gelu of the result; the input of gelu is stored */
};
struct gemm {
    enum kernels_precision precision;
    int64_t m, n, k, lda, ldb, ldc;
    int64_t alignment; /* of the matrices' addresses, in bytes: 2 .. 64 */
    unsigned flags;    /* of enum gemm_flag */
};

static inline bool gemm_equal(const struct gemm *a, const struct gemm *b) {
    return a->precision == b->precision && a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
           a->ldb == b->ldb && a->ldc == b->ldc && a->alignment == b->alignment && a->flags == b->flags;
}

#endif
