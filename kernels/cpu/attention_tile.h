/* The tiles of attention, and one thread's workspace for them. Only threads that compute a (batch, key head) have a
 * workspace: with schedule(static, 1) these are the first threads of the team.
 *
 * Scores of a (batch, head) are cut in tiles of TILE queries by TILE keys: a tile of scores (16 KiB) stays in the L1
 * cache while it is multiplied, exponentiated and multiplied again. Sizes are in floats and rounded up to 16, so that
 * every part begins on a cache line if the workspace does. */
#ifndef KERNELS_CPU_ATTENTION_TILE_H
#define KERNELS_CPU_ATTENTION_TILE_H

#include "kernels/kernels.h"

#include <assert.h>

enum { TILE = 64 };

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Floats of the keys of one head, or of any other tensor (time, head). */
static inline int64_t attention_panel(const struct attention_dims *d) {
    return round_up(d->time, TILE) * round_up(d->head, 16);
}

/* Panels of one thread. fp32 needs two: keys and values, transposed. Elements of 16 bits need seven more: queries,
 * keys, values and gradients of outputs are converted to fp32 first, and the gradients of queries, keys and values are
 * summed in fp32. */
enum { PANELS_FP32 = 2, PANELS_NARROW = 9, TILES_FP32 = 2, TILES_NARROW = 4 };

/* Bytes of one thread's part: panels, tiles of scores and of their gradients (2 tiles; in bf16 2 more for the rounded
 * copies), a tile of outputs, and statistics of the rows (at least 2 x TILE). The plain path needs less. */
static inline size_t attention_tile_bytes(const struct attention_dims *d, enum kernels_precision precision) {
    assert(d->batch > 0 && d->time > 0 && d->head > 0 && d->kv_heads > 0 && d->heads % d->kv_heads == 0);
    const int64_t panels = precision == KERNELS_FP32 ? PANELS_FP32 : PANELS_NARROW;
    const int64_t tiles = precision == KERNELS_FP32 ? TILES_FP32 : TILES_NARROW;
    return sizeof(float) * (size_t)(panels * attention_panel(d) + tiles * TILE * TILE + TILE * round_up(d->head, 16) +
                                    2 * round_up(d->time, TILE));
}

#endif
