#include "executor/engine/data/sampler.h"

#include <assert.h>

/* Philox4x32-10's first word: counter {c0, c1, c2, c3} under key {k0, k1}. */
static uint32_t philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        uint32_t next0 = (uint32_t)(b >> 32) ^ c1 ^ k0, next2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = next0;
        c2 = next2;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c0;
}

int64_t sampler_permute(int64_t seed, int64_t epoch, enum sampler_stream stream, int64_t n, int64_t i) {
    enum {
        ROUNDS = 6
    }; /* four make a strong pseudorandom permutation (Luby and Rackoff 1988); small halves want more */
    assert(n >= 1 && i >= 0 && i < n && epoch >= 0);
    int half = 1;
    while (half < 31 && (int64_t)1 << 2 * half < n)
        half++;
    const uint32_t mask = ((uint32_t)1 << half) - 1;

    uint64_t x = (uint64_t)i;
    do {
        uint32_t left = (uint32_t)(x >> half), right = (uint32_t)x & mask;
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t f = philox(right, (uint32_t)round << 8 | (uint32_t)stream, (uint32_t)epoch,
                                (uint32_t)((uint64_t)epoch >> 32), (uint32_t)seed, (uint32_t)((uint64_t)seed >> 32));
            uint32_t next = left ^ (f & mask);
            left = right;
            right = next;
        }
        x = (uint64_t)left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t sampler_start(int64_t seed, enum sampler_stream stream, int64_t n, int64_t sample) {
    return sampler_permute(seed, sample / n, stream, n, sample % n);
}
