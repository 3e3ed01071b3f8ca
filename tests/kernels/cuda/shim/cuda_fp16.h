/* The conversions of NVIDIA's header of this name, implemented by those of the CPU's kernels. */
#ifndef TESTS_KERNELS_CUDA_SHIM_FP16_H
#define TESTS_KERNELS_CUDA_SHIM_FP16_H

#include "kernels/cpu/element.h"

struct __half {
    uint16_t bits;
};
static inline float __half2float(__half x) { return float_of_fp16(x.bits); }
static inline __half __float2half_rn(float x) { return { fp16_of_float(x) }; }

#endif
