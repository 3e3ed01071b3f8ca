/* The conversions of NVIDIA's header of this name, implemented by those of the CPU's kernels. */
#ifndef TESTS_KERNELS_CUDA_SHIM_BF16_H
#define TESTS_KERNELS_CUDA_SHIM_BF16_H

#include "kernels/cpu/element.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
static inline float __bfloat162float(__nv_bfloat16 x) { return float_of_bf16(x.bits); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return { bf16_of_float(x) }; }

#endif
