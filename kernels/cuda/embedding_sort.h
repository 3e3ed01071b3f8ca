/* Tokens in ascending order, each with its position; positions of equal tokens stay in order. */
#ifndef KERNELS_CUDA_EMBEDDING_SORT_H
#define KERNELS_CUDA_EMBEDDING_SORT_H

#include "kernels/cuda/cuda.h"

struct sorted_tokens {
    const int32_t *tokens, *positions; /* (n), in the workspace */
};

/* tokens (n), n < 2^31; one outside the vocabulary counts as 0, as forward has it. */
MUST_CHECK status_t embedding_sort(const struct kernels *k, struct sorted_tokens *ret, const int32_t *tokens, int64_t n,
                                   int64_t vocabulary, void *workspace, struct err *e);
size_t embedding_sort_bytes(int64_t n);

#endif
