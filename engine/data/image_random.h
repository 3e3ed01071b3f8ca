/* The random numbers of a training sample of images: Philox4x32-10 (kernels/philox.h) with the seed as key and the
 * number of the sample as counter, so every rank, layout and resume draws the same. Pure; any thread. Private to this
 * folder. */
#ifndef ENGINE_DATA_IMAGE_RANDOM_H
#define ENGINE_DATA_IMAGE_RANDOM_H

#include "kernels/philox.h"

#include <stdint.h>

/* Makes these random numbers independent of those of other users of the seed. */
#define IMAGE_RANDOM_STREAM 0x6a09e667f3bcc908u

/* The blocks of four random numbers that a sample has. */
enum {
    IMAGE_RANDOM_VIEW,
    IMAGE_RANDOM_COLOR,
    IMAGE_RANDOM_CROP,         /* and the ones that follow */
    IMAGE_RANDOM_MIXUP = 1024, /* and the ones that follow */
};

static inline void image_random(int64_t seed, int64_t sample, uint32_t block, uint32_t ret[4]) {
    const uint32_t counter[4] = { (uint32_t)sample, (uint32_t)((uint64_t)sample >> 32), block, 0 };
    philox4x32_10(counter, (uint64_t)seed ^ IMAGE_RANDOM_STREAM, ret);
}

/* A random number as one between two numbers. */
static inline double image_uniform(uint32_t random, double from, double to) {
    return from + (to - from) * ((double)random * 0x1p-32);
}

#endif
