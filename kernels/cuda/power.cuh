/* exp and 1 / (1 + exp), as exact as a kernel's elements need.
 *
 * fp32 uses the exact functions. Elements of 2 bytes keep 8 or 11 bits, so they use the device's ex2 and rcp, which
 * are exact to 2 units in the last place of fp32 and take one instruction each (PTX ISA, ex2.approx and rcp.approx). */
#ifndef KERNELS_CUDA_POWER_CUH
#define KERNELS_CUDA_POWER_CUH

#include <cuda_runtime.h>

#define LOG2_E 1.44269504088896341f

/* 2^x; results below fp32's normal numbers are 0. */
__device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.0f / x;
#endif
}

/* exp(x - shift) for elements of type E. */
template <class E> struct exp_minus {
    float shift;
    __device__ __forceinline__ exp_minus(float by) : shift(by * LOG2_E) {}
    __device__ __forceinline__ float operator()(float x) const { return power_of_two(fmaf(x, LOG2_E, -shift)); }
};
template <> struct exp_minus<float> {
    float shift;
    __device__ __forceinline__ exp_minus(float by) : shift(by) {}
    __device__ __forceinline__ float operator()(float x) const { return expf(x - shift); }
};

/* 1 / (1 + exp(-x)) for elements of type E. */
template <class E> __device__ __forceinline__ float sigmoid(float x) {
    return reciprocal(1.0f + power_of_two(-LOG2_E * x));
}
template <> __device__ __forceinline__ float sigmoid<float>(float x) { return 1.0f / (1.0f + expf(-x)); }

#endif
