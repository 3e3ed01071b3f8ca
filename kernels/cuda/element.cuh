/* The elements of a kernel's tensors, and how threads read and write them: 16 bytes at a time if possible.
 *
 *     template <class E> __global__ void twice(E *y, const E *x, int64_t n) {
 *         for (int64_t at = first_pack<E>(); at < n; at += pack_stride<E>()) {
 *             float a[PACK<E>];
 *             read(a, x + at, n - at);
 *             ...
 *             write(y + at, a, n - at);
 *         }
 *     }
 *
 * Elements become fp32 when they are read and are rounded to nearest even when they are written, as kernels.h says.
 * A pack at an address that is not a multiple of 16, and the last pack of an array, are read and written element by
 * element. */
#ifndef KERNELS_CUDA_ELEMENT_CUH
#define KERNELS_CUDA_ELEMENT_CUH

#include "kernels/cuda/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef __nv_bfloat16 bf16;
typedef __half fp16;

__device__ __forceinline__ float float_of(float x) { return x; }
__device__ __forceinline__ float float_of(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float float_of(fp16 x) { return __half2float(x); }

template <class E> __device__ __forceinline__ E element_of(float x);
template <> __device__ __forceinline__ float element_of<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 element_of<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ fp16 element_of<fp16>(float x) { return __float2half_rn(x); }

/* Calls f with a value of the table's element type: by_precision(k, [&](auto zero) { typedef decltype(zero) E; ... }).
 */
template <class F> status_t by_precision(const struct kernels *k, F f) {
    switch (k->precision) {
    case KERNELS_BF16: return f(bf16());
    case KERNELS_FP16: return f(fp16());
    default: return f(float());
    }
}

/* The numbers that a thread processes at once: 16 bytes of the narrowest type. */
template <class E> constexpr int PACK = 16 / (int)sizeof(E);

struct alignas(16) word {
    uint32_t part[4];
};

/* Converts a word to its numbers; and numbers to a word, rounded. */
template <class E> __device__ __forceinline__ void convert_to_fp32(float *to, word from) {
    union {
        word whole;
        E at[PACK<E>];
    } in = { from };
#pragma unroll
    for (int i = 0; i < PACK<E>; i++)
        to[i] = float_of(in.at[i]);
}
template <class E> __device__ __forceinline__ word round_to(const float *from) {
    union {
        E at[PACK<E>];
        word whole;
    } out;
#pragma unroll
    for (int i = 0; i < PACK<E>; i++)
        out.at[i] = element_of<E>(from[i]);
    return out.whole;
}

/* n_valid: how many of the numbers exist. The others are read as 0 and not written. */
template <int N, class E> __device__ __forceinline__ void read(float (&to)[N], const E *from, int64_t n_valid) {
    constexpr int EACH = PACK<E>;
    static_assert(N % EACH == 0, "a pack is whole words");
    if (n_valid >= N && (uintptr_t)from % sizeof(word) == 0) {
#pragma unroll
        for (int w = 0; w < N / EACH; w++) {
            union {
                word whole;
                E at[EACH];
            } in = { ((const word *)from)[w] };
#pragma unroll
            for (int i = 0; i < EACH; i++)
                to[w * EACH + i] = float_of(in.at[i]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = i < n_valid ? float_of(from[i]) : 0.0f;
}

template <int N, class E> __device__ __forceinline__ void write(E *to, const float (&from)[N], int64_t n_valid) {
    constexpr int EACH = PACK<E>;
    static_assert(N % EACH == 0, "a pack is whole words");
    if (n_valid >= N && (uintptr_t)to % sizeof(word) == 0) {
#pragma unroll
        for (int w = 0; w < N / EACH; w++) {
            union {
                E at[EACH];
                word whole;
            } out;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                out.at[i] = element_of<E>(from[w * EACH + i]);
            ((word *)to)[w] = out.whole;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < n_valid)
            to[i] = element_of<E>(from[i]);
}

/* The index at which a thread begins in an array that the grid visits in packs of N, and the distance to its next
 * pack. */
template <int N> __device__ __forceinline__ int64_t first_pack() {
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
}
template <int N> __device__ __forceinline__ int64_t pack_stride() { return (int64_t)gridDim.x * blockDim.x * N; }

#endif
