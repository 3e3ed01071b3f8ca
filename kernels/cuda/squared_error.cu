#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

#include <math.h>

enum { THREADS = 512 };

/* The mean square of the difference, for the block's sample. */
template <class E> static __device__ __forceinline__ double mean_square(const E *x, const float *reference, int64_t n) {
    double sum = 0;
    for (int64_t at = (int64_t)threadIdx.x * PACK<E>; at < n; at += THREADS * PACK<E>) {
        float a[PACK<E>], b[PACK<E>];
        read(a, x + at, n - at);
        read(b, reference + at, n - at);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++) {
            const double apart = (double)a[j] - (double)b[j];
            sum += apart * apart;
        }
    }
    return block_sum(sum, 0) / (double)n;
}

template <class E>
static __global__ void __launch_bounds__(THREADS)
    squared_error(float *losses, E *x, const float *reference, int64_t n, const float *scale) {
    const int64_t sample = blockIdx.x * n;
    const double mean = mean_square(x + sample, reference + sample, n);
    if (threadIdx.x == 0)
        losses[blockIdx.x] = (float)mean;
    if (!scale)
        return;
    const float factor = *scale * 2 / (float)n;
    for (int64_t at = (int64_t)threadIdx.x * PACK<E>; at < n; at += THREADS * PACK<E>) {
        float a[PACK<E>], b[PACK<E>];
        read(a, x + sample + at, n - at);
        read(b, reference + sample + at, n - at);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            a[j] = factor * (a[j] - b[j]);
        write(x + sample + at, a, n - at);
    }
}

status_t cuda_squared_error(const struct kernels *k, float *losses, element_t *x, const float *reference, int64_t batch,
                            int64_t n, const float *scale, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, squared_error<E>, dim3((unsigned)batch), dim3(THREADS), losses, (E *)x, reference, n,
                      scale);
    });
}

/* Equal images get 200 dB instead of infinity, so that an average over samples is finite. */
template <class E>
static __global__ void __launch_bounds__(THREADS) psnr(float *psnr, const E *x, const float *reference, int64_t n) {
    const int64_t sample = blockIdx.x * n;
    const double mean = mean_square(x + sample, reference + sample, n);
    if (threadIdx.x == 0)
        psnr[blockIdx.x] = (float)(-10 * log10(fmax(mean, 1e-20)));
}

status_t cuda_psnr(const struct kernels *k, float *to, const element_t *x, const float *reference, int64_t batch,
                   int64_t n, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, psnr<E>, dim3((unsigned)batch), dim3(THREADS), to, (const E *)x, reference, n);
    });
}
