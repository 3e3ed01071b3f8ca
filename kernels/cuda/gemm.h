/* A matrix product, as its callers ask for it: C (m, n) = A (m, k) B (k, n), row-major; lda, ldb, ldc from a row to the
 * next, as they lie in memory. */
#ifndef KERNELS_CUDA_GEMM_H
#define KERNELS_CUDA_GEMM_H

#include "kernels/kernels.h"

enum gemm_flag {
    GEMM_A_TRANSPOSED = 1, /* A lies as (k, m) */
    GEMM_B_TRANSPOSED = 2, /* B lies as (n, k) */
    GEMM_ACCUMULATE = 4,   /* C += */
    GEMM_C_FP32 = 8,       /* C is fp32 in every precision */
    GEMM_BIAS = 16,        /* + bias (n), to each row */
    GEMM_GELU = 32,        /* C = gelu of it, and what goes into gelu is kept */
};
struct gemm {
    enum kernels_precision precision;
    int64_t m, n, k, lda, ldb, ldc;
    int64_t alignment; /* of all pointers, in bytes: 2 .. 16 */
    unsigned flags;    /* of enum gemm_flag */
};

static inline bool gemm_equal(const struct gemm *a, const struct gemm *b) {
    return a->precision == b->precision && a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
           a->ldb == b->ldb && a->ldc == b->ldc && a->alignment == b->alignment && a->flags == b->flags;
}

#endif
