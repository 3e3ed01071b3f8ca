/* Dropout's mask, one element at a time: the definition that the vector code must match to the bit.
 *
 * Philox's key is the seed; its counter is (element / 4, sample, op, step), and element mod 4 selects one of its four
 * numbers. This limits the ranges in kernels.h, and a sample to 2^34 elements. */
#ifndef KERNELS_CPU_MASK_H
#define KERNELS_CPU_MASK_H

#include "kernels/kernels.h"
#include "kernels/philox.h"

#include <assert.h>

struct mask {
    uint64_t seed;
    uint32_t op, step;
    uint32_t threshold; /* a number below the threshold drops its element */
    float kept;         /* 1 / (1 - probability) */
};

static inline struct mask mask_of(const struct dropout *d) {
    assert(d->probability >= 0 && d->probability < 1);
    return (struct mask){ .seed = d->key.seed,
                          .op = d->key.op,
                          .step = d->probability > 0 ? (uint32_t)*d->key.step : 0,
                          .threshold = (uint32_t)((double)d->probability * 4294967296.0),
                          .kept = 1.0f / (1.0f - d->probability) };
}

/* The factor of the element: 0 or 1 / (1 - probability). */
static inline float mask_factor(const struct mask *m, int64_t sample, int64_t index) {
    if (m->threshold == 0)
        return m->kept;
    uint32_t counter[4] = { (uint32_t)(index / 4), (uint32_t)sample, m->op, m->step }, number[4];
    philox4x32_10(counter, m->seed, number);
    return number[index % 4] < m->threshold ? 0.0f : m->kept;
}

#endif
