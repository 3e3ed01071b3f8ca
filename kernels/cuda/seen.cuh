/* The gradient as an optimizer uses it: scaled, then limited to [-limit, limit]. */
#ifndef KERNELS_CUDA_SEEN_CUH
#define KERNELS_CUDA_SEEN_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/kernels.h"

#include <math.h>

struct seen {
    const struct update *update;
    float limit, scale;
    /* Call this first in the kernel. False: the step changes nothing. */
    __device__ __forceinline__ bool begin() {
        scale = update->gradient_scale;
        return update->skip == STEP_APPLIED;
    }
    __device__ __forceinline__ float of(float g) const {
        const float x = g * scale;
        return x > limit ? limit : x < -limit ? -limit : x;
    }
};

static inline struct seen seen_of(const struct update *update, float clip_value) {
    return { update, clip_value > 0 ? clip_value : INFINITY, 0 };
}

#endif
