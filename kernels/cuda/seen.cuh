/* What an optimizer sees of a gradient: scaled, then put within the limit. */
#ifndef KERNELS_CUDA_SEEN_CUH
#define KERNELS_CUDA_SEEN_CUH

#include "kernels/cuda/element.cuh"

#include <math.h>

struct seen {
    float scale, limit;
    __device__ __forceinline__ float of(float g) const {
        const float x = g * scale;
        return x > limit ? limit : x < -limit ? -limit : x;
    }
};

static inline struct seen seen_of(float gradient_scale, float clip_value) {
    return { gradient_scale, clip_value > 0 ? clip_value : INFINITY };
}

#endif
