#include "engine/collective/nccl_accumulate.h"

#include <cuda_runtime.h>
#include <stdint.h>

namespace {

enum { THREADS = 256, MAX_BLOCKS = 1024 };

/* Shards begin at any element: 16 bytes at a time if both addresses are aligned. */
__global__ void add_wide(float4 *in, const float4 *arrived, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x) {
        float4 a = in[i];
        const float4 b = arrived[i];
        a.x += b.x;
        a.y += b.y;
        a.z += b.z;
        a.w += b.w;
        in[i] = a;
    }
}

__global__ void add_single(float *in, const float *arrived, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        in[i] += arrived[i];
}

__global__ void or_words(unsigned long long *in, const unsigned long long *arrived, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        in[i] |= arrived[i];
}

template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), size_t items, cudaStream_t stream, A... arguments) {
    const size_t blocks = (items + THREADS - 1) / THREADS;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(blocks < MAX_BLOCKS ? blocks : (size_t)MAX_BLOCKS));
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

} // namespace

cudaError_t nccl_accumulate_add(float *in, const float *arrived, size_t n, cudaStream_t stream) {
    const size_t wide = (((uintptr_t)in | (uintptr_t)arrived) & 15) == 0 ? n / 4 : 0, rest = n - 4 * wide;
    cudaError_t error = cudaSuccess;
    if (wide)
        error = launch(add_wide, wide, stream, (float4 *)in, (const float4 *)arrived, wide);
    if (rest && error == cudaSuccess)
        error = launch(add_single, rest, stream, in + 4 * wide, arrived + 4 * wide, rest);
    return error;
}

cudaError_t nccl_accumulate_or(unsigned long long *in, const unsigned long long *arrived, size_t words,
                               cudaStream_t stream) {
    return words ? launch(or_words, words, stream, in, arrived, words) : cudaSuccess;
}
