#include "engine/data/sampler.h"

#include "kernels/philox.h"

#include <assert.h>

/* The round function of the Feistel network. */
static uint32_t mix(uint32_t half, int round, int64_t epoch, enum sampler_stream stream, int64_t seed) {
    const uint32_t counter[4] = { half, (uint32_t)round << 8 | (uint32_t)stream, (uint32_t)epoch,
                                  (uint32_t)((uint64_t)epoch >> 32) };
    uint32_t random[4];
    philox4x32_10(counter, (uint64_t)seed, random);
    return random[0];
}

int64_t sampler_permute(int64_t seed, int64_t epoch, enum sampler_stream stream, int64_t n, int64_t i) {
    enum {
        ROUNDS = 6
    }; /* four make a strong pseudorandom permutation (Luby and Rackoff 1988); small halves need more */
    assert(n >= 1 && i >= 0 && i < n && epoch >= 0);
    int half = 1;
    while (half < 31 && (int64_t)1 << 2 * half < n)
        half++;
    const uint32_t mask = ((uint32_t)1 << half) - 1;

    uint64_t x = (uint64_t)i;
    do {
        uint32_t left = (uint32_t)(x >> half), right = (uint32_t)x & mask;
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t next = left ^ (mix(right, round, epoch, stream, seed) & mask);
            left = right;
            right = next;
        }
        x = (uint64_t)left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t sampler_index(enum source_split split, int64_t seed, int64_t n, int64_t sample) {
    return split == SOURCE_TRAIN ? sampler_permute(seed, sample / n, SAMPLER_ORDER, n, sample % n) : sample % n;
}

int64_t sampler_offset(int64_t seed, int64_t epoch, int context) {
    if (epoch == 0)
        return 0;
    const int64_t round = (epoch - 1) / context;
    return sampler_permute(seed, round, SAMPLER_OFFSET, context, (epoch - 1) % context);
}
