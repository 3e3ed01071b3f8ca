/* Philox4x32-10, one block of four numbers at a time: the plain form of the generator that dropout uses, for code
 * that needs the same streams (initial weights, sampling). J. Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011; the constants are the paper's. Pure; any thread. */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FUNCTION static __host__ __device__ __forceinline__
#else
#define PHILOX_FUNCTION static inline
#endif

PHILOX_FUNCTION void philox4x32_10(const uint32_t counter[4], uint64_t key, uint32_t ret[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t even = (uint64_t)c0 * 0xD2511F53u, odd = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(odd >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)odd;
        c2 = (uint32_t)(even >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)even;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    ret[0] = c0;
    ret[1] = c1;
    ret[2] = c2;
    ret[3] = c3;
}

#endif
