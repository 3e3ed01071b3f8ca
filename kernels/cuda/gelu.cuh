/* GELU by tanh, as kernels.h has it: 1/2 (1 + tanh(u)) = sigmoid(2u), without the sum that cancels where u < 0. */
#ifndef KERNELS_CUDA_GELU_CUH
#define KERNELS_CUDA_GELU_CUH

#include <cuda_runtime.h>

#define GELU_SCALE 0.79788456080286536f /* sqrt(2/pi) */
#define GELU_CUBE  0.044715f

__device__ __forceinline__ float gelu_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-2.0f * GELU_SCALE * (x + GELU_CUBE * x * x * x)));
}

__device__ __forceinline__ float gelu(float x) { return x * gelu_sigmoid(x); }

__device__ __forceinline__ float gelu_slope(float x) {
    const float s = gelu_sigmoid(x), slope = 2.0f * GELU_SCALE * (1.0f + 3.0f * GELU_CUBE * x * x);
    return s + x * s * (1.0f - s) * slope;
}

#endif
