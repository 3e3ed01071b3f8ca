/* Computes two normal numbers from two uniform ones (Box and Muller 1958), for code that draws weights or noise with
 * philox.h. Host only: no kernel needs them. Pure; any thread. */
#ifndef KERNELS_NORMAL_H
#define KERNELS_NORMAL_H

#include <math.h>
#include <stdint.h>

static inline void normal2(const uint32_t uniform[2], float ret[2]) {
    /* (0, 1], so that the logarithm is finite. */
    float radius = sqrtf(-2.0f * logf(((float)(uniform[0] >> 8) + 1.0f) * 0x1p-24f));
    float angle = (float)(2 * M_PI) * ((float)(uniform[1] >> 8) * 0x1p-24f);
    ret[0] = radius * cosf(angle);
    ret[1] = radius * sinf(angle);
}

#endif
