/* Products of small tiles of fp32 that stay in the L1 cache. Attention and the gradients of convolution weights use
 * them. */
#ifndef KERNELS_CPU_VECTOR_TILE_H
#define KERNELS_CPU_VECTOR_TILE_H

#include "kernels/cpu/vector/ops.h"

/* C (m, n) = or += A (m, k) B (k, n). Element (i, l) of A is a[i * a_row + l * a_column]. The rows of B and C are
 * contiguous, and ldb and ldc floats apart. The terms of each element of C are added in the order of l. */
void VECTOR_ISA(tile_product)(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_column, const float *b,
                              int64_t ldb, int64_t m, int64_t n, int64_t k, bool accumulate);

/* The same product, but each 32 bits of A and B are two bf16, neighbours along k, and k counts such pairs. Only on
 * processors with AVX512-BF16. */
void VECTOR_ISA(tile_product_pairs)(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_column,
                                    const float *b, int64_t ldb, int64_t m, int64_t n, int64_t k, bool accumulate);

/* k in n runs: each run begins a numbers of A and b numbers of B after the previous run. */
struct tile_runs {
    int64_t n, a, b;
};

/* C (m, n) += A^T B over all runs of k. A and B have k rows each, a_column and ldb floats apart. The other arguments
 * are as above. */
void VECTOR_ISA(tile_sum)(float *c, int64_t ldc, const float *a, int64_t a_column, const float *b, int64_t ldb,
                          int64_t m, int64_t n, int64_t k, const struct tile_runs *runs);
void VECTOR_ISA(tile_sum_pairs)(float *c, int64_t ldc, const float *a, int64_t a_column, const float *b, int64_t ldb,
                                int64_t m, int64_t n, int64_t k, const struct tile_runs *runs);

/* to (columns, to_ld) = from (rows, from_ld) transposed. */
void VECTOR_ISA(tile_transpose)(float *to, int64_t to_ld, const float *from, int64_t from_ld, int64_t rows,
                                int64_t columns);

#endif
