/* The inputs of the tests of reductions, the sums that must result, and random cuts of arrays. */
#ifndef TESTS_ENGINE_ORDERED_SUM_H
#define TESTS_ENGINE_ORDERED_SUM_H

#include "engine/collective/collective.h"

/* A value that rounds differently in every order of addition. */
static inline float value_of(int rank, int64_t i, int64_t n) {
    uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank * 40503u) ^ (uint32_t)n;
    x ^= x >> 13;
    x *= 0x5bd1e995u;
    x ^= x >> 15;
    return ((float)(x & 0xffff) - 32768.0f) * (1.0f + (float)(x >> 28) * 1e-3f);
}

/* The tree over a group's ranks number .. number + count - 1, serially. */
static inline float tree_over(const struct collective_group *g, int number, int count, int64_t i, int64_t n) {
    return count == 1 ? value_of(g->first + number * g->stride, i, n)
                      : tree_over(g, number, count / 2, i, n) + tree_over(g, number + count / 2, count / 2, i, n);
}

/* Cuts [0, n) into `count` pieces at random, some of them empty. */
static inline void draw_cuts(uint32_t *state, int64_t n, int count, int64_t *cut) {
    cut[0] = 0;
    cut[count] = n;
    for (int j = 1; j < count; j++) {
        *state = *state * 1664525 + 1013904223;
        cut[j] = cut[j - 1] + (int64_t)((double)(*state >> 8) * 0x1p-23 * (double)(n - cut[j - 1]) / (count - j + 1));
        if (cut[j] > n)
            cut[j] = n;
    }
}

#endif
