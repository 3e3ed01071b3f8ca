/* Both forms of GELU, as kernels.h defines them.
 *
 * By tanh: 1/2 (1 + tanh(u)) = sigmoid(2u). The sigmoid avoids the sum 1 + tanh(u), which loses digits if u < 0. By
 * erf: 1/2 (1 + erf(x)) = 1/2 erfc(-x), which likewise keeps its digits below 0. */
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

__device__ __forceinline__ float normal_distribution(float x) { return 0.5f * erfcf(-0.70710678118654752f * x); }

template <class E> __device__ __forceinline__ float gelu_erf(float x) { return x * normal_distribution(x); }

/* The distribution function, and x times its density exp(-x^2 / 2) / sqrt(2 pi). */
template <class E> __device__ __forceinline__ float gelu_erf_slope(float x) {
    return normal_distribution(x) + x * 0.39894228040143268f * exp_minus<E>(0.0f)(-0.5f * x * x);
}

#endif
