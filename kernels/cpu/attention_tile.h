/* The tiles of attention, and one thread's workspace for them.
 *
 * Scores of a (batch, head) are cut in tiles of TILE queries by TILE keys: a tile of scores (16 KiB) stays in the L1
 * cache while it is multiplied, exponentiated and multiplied again. Sizes are in floats and rounded to 16, so that
 * every part begins on a cache line when the workspace does. */
#ifndef KERNELS_CPU_ATTENTION_TILE_H
#define KERNELS_CPU_ATTENTION_TILE_H

#include "kernels/kernels.h"

#include <assert.h>

enum { TILE = 64 };

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* One thread's part: keys and values transposed (2 x time x head), scores and their gradients (2 tiles), a tile of
 * outputs, and statistics of the rows (at least 2 x TILE). The plain path needs one row of probabilities of it. */
static inline size_t attention_tile_bytes(const struct attention_dims *d) {
    assert(d->heads > 0 && d->width % d->heads == 0);
    const int64_t head = round_up(d->width / d->heads, 16), time = round_up(d->time, TILE);
    return sizeof(float) * (size_t)(2 * time * head + 2 * TILE * TILE + TILE * head + 2 * time);
}

#endif
