/* The sum of many numbers in double, in two stages: many blocks sum one part each, then one block sums the parts.
 * The division into parts depends on the count alone, so that the sum has the same bits on every device. */
#ifndef KERNELS_CUDA_SUMS_CUH
#define KERNELS_CUDA_SUMS_CUH

#include "kernels/cuda/reduce.cuh"

enum { SUM_THREADS = 256, SUM_EACH = 8 * SUM_THREADS }; /* at least so many numbers per part */

static inline int64_t sum_parts(int64_t n) {
    const int64_t parts = (n + SUM_EACH - 1) / SUM_EACH, limit = CUDA_PARTIAL_SUMS;
    return parts < 1 ? 1 : parts < limit ? parts : limit;
}

/* The first stage: blocks of SUM_THREADS, one per part. */
template <class T>
static __global__ void __launch_bounds__(SUM_THREADS) add_parts(double *parts, const T *a, int64_t n) {
    const int64_t end = piece_begin(n, (int64_t)blockIdx.x + 1, gridDim.x);
    double sum = 0;
#pragma unroll 4
    for (int64_t i = piece_begin(n, blockIdx.x, gridDim.x) + threadIdx.x; i < end; i += SUM_THREADS)
        sum += (double)a[i];
    sum = block_sum(sum, 0);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

/* The second stage: one block of SUM_THREADS. All its threads get the sum. */
static __device__ __forceinline__ double add_up_parts(const double *parts, int64_t n, int turn) {
    static_assert((int)CUDA_PARTIAL_SUMS <= (int)SUM_THREADS, "a thread has one part");
    return block_sum((int64_t)threadIdx.x < n ? parts[threadIdx.x] : 0.0, turn);
}

#endif
