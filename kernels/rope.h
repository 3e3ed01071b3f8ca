/* By how much the pairs of a head turn: what every device's rotary positions share. See struct rope in kernels.h. */
#ifndef KERNELS_ROPE_H
#define KERNELS_ROPE_H

#include "kernels/kernels.h"

#include <math.h>

/* What pair i turns by from one position to the next, in radians. */
static inline double rope_frequency(const struct rope *r, int64_t i, int64_t head) {
    const __typeof__(r->scaling) *s = &r->scaling;
    const double frequency = pow(r->theta, -2.0 * (double)i / (double)head);
    if (s->factor == 0)
        return frequency;
    /* By the turns of this pair within the old context: none of its frequency is kept at low_frequency turns and less,
     * all of it at high_frequency turns and more. */
    const double turns = (double)s->context * frequency / (2 * M_PI);
    const double kept = (turns - s->low_frequency) / (s->high_frequency - s->low_frequency);
    const double fraction = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return frequency * (fraction + (1 - fraction) / s->factor);
}

#endif
