/* GELU by tanh, as kernels.h defines it: 1/2 (1 + tanh(u)) = sigmoid(2u). The sigmoid avoids the sum 1 + tanh(u),
 * which loses digits if u < 0. */
#ifndef KERNELS_CUDA_GELU_CUH
#define KERNELS_CUDA_GELU_CUH

#include "kernels/cuda/power.cuh"

#define GELU_SCALE 0.79788456080286536f /* sqrt(2/pi) */
#define GELU_CUBE  0.044715f

template <class E> __device__ __forceinline__ float gelu_sigmoid(float x) {
    return sigmoid<E>(2.0f * GELU_SCALE * (x + GELU_CUBE * x * x * x));
}

template <class E> __device__ __forceinline__ float gelu(float x) { return x * gelu_sigmoid<E>(x); }

template <class E> __device__ __forceinline__ float gelu_slope(float x) {
    const float s = gelu_sigmoid<E>(x), slope = 2.0f * GELU_SCALE * (1.0f + 3.0f * GELU_CUBE * x * x);
    return s + x * s * (1.0f - s) * slope;
}

#endif
