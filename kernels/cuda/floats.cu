/* Operations on all gradients and parameters: sums of squares, sums, and tests for finite numbers. */
#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/spans.cuh"
#include "kernels/cuda/sums.cuh"

enum { THREADS = 256 };

/* Chunks per block: one for each warp. */
enum { CHUNKS = THREADS / WARP };

static __global__ void __launch_bounds__(THREADS) sum_squares(const __grid_constant__ spans<struct norm_span> list) {
    const int i = list.holding(blockIdx.x);
    const struct norm_span s = list.at[i];
    const int64_t chunk = (int64_t)((int)blockIdx.x - list.first[i]) * CHUNKS + threadIdx.y;
    const int64_t begin = chunk * KERNELS_CHUNK;
    if (begin >= s.n)
        return;
    double sum = 0;
#pragma unroll
    for (int round = 0; round < KERNELS_CHUNK / (WARP * PACK<float>); round++) {
        const int64_t at = begin + (round * WARP + (int)threadIdx.x) * PACK<float>;
        float x[PACK<float>];
        read(x, s.a + at, s.n - at);
#pragma unroll
        for (int j = 0; j < PACK<float>; j++)
            sum += (double)x[j] * x[j];
    }
    sum = warp_reduce(sum, add_up());
    if (threadIdx.x == 0)
        s.sums[chunk] = sum;
}

status_t cuda_sum_squares(const struct kernels *k, const struct norm_span *all, int n_all, struct err *e) {
    static_assert(sizeof(spans<struct norm_span>) <= PARAMETER_BYTES, "a launch takes it");
    return spans_each(all, n_all, CHUNKS * KERNELS_CHUNK, [&](const spans<struct norm_span> &list) {
        return launch(k, e, sum_squares, dim3((unsigned)list.parts), dim3(WARP, CHUNKS), list);
    });
}

static __global__ void __launch_bounds__(SUM_THREADS) sum_all(double *ret, const double *parts, int64_t n_parts) {
    const double sum = add_up_parts(parts, n_parts, 0);
    if (threadIdx.x == 0)
        *ret = sum;
}

status_t cuda_sum(const struct kernels *k, double *ret, const float *a, int64_t n, struct err *e) {
    double *parts = cuda_of(k)->partial_sums;
    const int64_t n_parts = sum_parts(n);
    TRY(launch(k, e, add_parts<float>, dim3((unsigned)n_parts), dim3(SUM_THREADS), parts, a, n));
    return launch(k, e, sum_all, dim3(1), dim3(SUM_THREADS), ret, parts, n_parts);
}

/* One block for each row. */
static __global__ void __launch_bounds__(SUM_THREADS) add_rows(double *ret, const float *a, int64_t n) {
    const float *row = a + (int64_t)blockIdx.x * n;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += SUM_THREADS)
        sum += (double)row[i];
    sum = block_sum(sum, 0);
    if (threadIdx.x == 0)
        ret[blockIdx.x] = sum;
}

status_t cuda_sum_rows(const struct kernels *k, double *ret, const float *a, int64_t rows, int64_t n, struct err *e) {
    return launch(k, e, add_rows, dim3((unsigned)rows), dim3(SUM_THREADS), ret, a, n);
}

/* *ret becomes false if a number is not finite. Several threads may write it, all with the same value. */
template <class E> static __global__ void __launch_bounds__(THREADS) finite(bool *ret, const E *a, int64_t n) {
    bool all = true;
    for (int64_t at = first_pack<PACK<E>>(); at < n; at += pack_stride<PACK<E>>()) {
        float x[PACK<E>];
        read(x, a + at, n - at);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            all = all && x[j] - x[j] == 0;
    }
    if (!all)
        store_shared(ret, false);
}

template <class E>
static status_t run_finite(const struct kernels *k, bool *ret, const E *a, int64_t n, struct err *e) {
    TRY(cuda_status(cudaMemsetAsync(ret, true, sizeof *ret, cuda_of(k)->stream), "setting a flag", e));
    return launch(k, e, finite<E>, cuda_grid(k, n, THREADS * PACK<E>), dim3(THREADS), ret, a, n);
}

status_t cuda_all_finite(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e) {
    return run_finite(k, ret, a, n, e);
}

status_t cuda_elements_finite(const struct kernels *k, bool *ret, const element_t *a, int64_t n, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_finite(k, ret, (const E *)a, n, e);
    });
}
