/* Dropout's mask on the device: the same numbers for the same elements as kernels/cpu/mask.h, which defines it. */
#ifndef KERNELS_CUDA_MASK_CUH
#define KERNELS_CUDA_MASK_CUH

#include "kernels/kernels.h"
#include "kernels/philox.h"

#include <cuda_runtime.h>

struct mask {
    uint64_t seed;
    const int64_t *step; /* in device memory */
    uint32_t op;
    uint32_t threshold; /* elements whose number is below it are dropped; 0: all are kept */
    float kept;         /* 1 / (1 - probability) */
    uint32_t first_sample;
};

static inline struct mask mask_of(const struct dropout *d) {
    struct mask m = {};
    m.kept = 1.0f / (1.0f - d->probability);
    if (d->probability == 0)
        return m;
    m.seed = d->key.seed;
    m.op = d->key.op;
    m.step = d->key.step;
    m.threshold = (uint32_t)((double)d->probability * 4294967296.0);
    m.first_sample = (uint32_t)d->first_sample;
    return m;
}

/* The four numbers of elements 4 group .. 4 group + 3 of the call's sample. Only if threshold is not 0. */
__device__ __forceinline__ void mask_numbers(const struct mask &m, uint32_t sample, int64_t group, uint32_t (&to)[4]) {
    const uint32_t counter[4] = { (uint32_t)group, m.first_sample + sample, m.op, (uint32_t)*m.step };
    philox4x32_10(counter, m.seed, to);
}

/* The factor of the element: 0 or 1 / (1 - probability). */
__device__ __forceinline__ float mask_factor(const struct mask &m, uint32_t sample, int64_t index) {
    uint32_t number[4];
    if (m.threshold == 0)
        return m.kept;
    mask_numbers(m, sample, index / 4, number);
    const uint32_t at = (uint32_t)(index % 4), low = at & 1 ? number[1] : number[0],
                   high = at & 1 ? number[3] : number[2];
    return (at & 2 ? high : low) < m.threshold ? 0.0f : m.kept;
}

#endif
