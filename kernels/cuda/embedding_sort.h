/* Sorts tokens in ascending order, each with its position. Positions of equal tokens stay in order. */
#ifndef KERNELS_CUDA_EMBEDDING_SORT_H
#define KERNELS_CUDA_EMBEDDING_SORT_H

#include "kernels/kernels.h"

/* A tile has one token for each thread of a block. A round sorts by one digit. A part is the number of sorted places
 * that one row of threads sums. */
enum { SORT_DIGIT_BITS = 6, SORT_DIGITS = 1 << SORT_DIGIT_BITS, SORT_TILE = 1024, SORT_PART = 32 };

struct sorted_tokens {
    const int32_t *tokens, *positions; /* (n), in the workspace */
};

/* tokens (n), n < 2^31. A token outside the vocabulary counts as 0, as in forward. */
MUST_CHECK status_t embedding_sort(const struct kernels *k, struct sorted_tokens *ret, const int32_t *tokens, int64_t n,
                                   int64_t vocabulary, void *workspace, struct err *e);

static inline int64_t embedding_sort_tiles(int64_t n) { return (n + SORT_TILE - 1) / SORT_TILE; }
static inline int64_t embedding_sort_parts(int64_t n) { return (n + SORT_PART - 1) / SORT_PART; }

/* Two arrays each of (n) tokens and positions, and the counts; a multiple of 16. */
static inline size_t embedding_sort_bytes(int64_t n) {
    return sizeof(int32_t) * (size_t)(4 * n + SORT_DIGITS * embedding_sort_tiles(n));
}

#endif
