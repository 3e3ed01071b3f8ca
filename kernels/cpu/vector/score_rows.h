/* Tiles of scores of one query head of one sample, and how their rows become probabilities. A row belongs to one query
 * and has TILE fp32 numbers, one for each key. The first of them belong to keys that the query sees. */
#ifndef KERNELS_CPU_VECTOR_SCORE_ROWS_H
#define KERNELS_CPU_VECTOR_SCORE_ROWS_H

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/math.h"

#include <math.h>

struct scores {
    float *tile;    /* (TILE, TILE): a tile of queries by a tile of keys */
    float *outputs; /* (TILE, width): the outputs of the tile's queries so far */
    int64_t width, time;
    bool causal;
    float scale;
    const struct mask *mask; /* NULL: no dropout */
    int64_t sample, first_element;
};

/* The scores of sample b. The caller sets first_element for each head. */
static inline struct scores scores_of(const struct attention_dims *d, const struct dropout *dropout,
                                      const struct mask *mask, int64_t b, float *tile, float *outputs) {
    return (struct scores){ .tile = tile,
                            .outputs = outputs,
                            .width = d->head,
                            .time = d->time,
                            .causal = d->causal,
                            .scale = 1.0f / sqrtf((float)d->head),
                            .mask = dropout->probability > 0 ? mask : NULL,
                            .sample = dropout->first_sample + b };
}

static inline void multiply(float *row, const float *by) {
    for (int64_t s = 0; s < TILE; s += LANES)
        vf_store(row + s, vf_mul(vf_load(row + s), vf_load(by + s)));
}

static const float LOG2E = 1.44269504f;

/* Turns a row of scores into exp(scale score - row_max), with 0 past the keys that the query sees, and returns their
 * sum. The caller guarantees that no score exceeds row_max so far that its exp overflows. */
static inline float row_exp(float *row, int64_t n, float scale, float row_max) {
    const vf by = vf_set(scale * LOG2E), less = vf_set(-row_max * LOG2E);
    vf sum = vf_set(0);
    for (int64_t s = 0; s < TILE; s += LANES) {
        if (s >= n) {
            vf_store(row + s, vf_set(0));
            continue;
        }
        const vf all = vf_exp2(vf_fma(vf_load(row + s), by, less));
        const vf p = vf_first_of(all, vf_set(0), lanes_at(s, n));
        vf_store(row + s, p);
        sum = vf_add(sum, p);
    }
    return vf_sum(sum);
}

static inline float row_maximum(const float *row, int64_t n) {
    const vf lowest = vf_set(-INFINITY);
    vf row_max = lowest;
    for (int64_t s = 0; s < n; s += LANES)
        row_max = vf_max(row_max, vf_first_of(vf_load(row + s), lowest, lanes_at(s, n)));
    return vf_reduce_max(row_max);
}

static inline void row_scale(float *row, int64_t n, float factor) {
    for (int64_t c = 0; c < n; c += LANES) {
        const int64_t lanes = lanes_at(c, n);
        vf_store_first(row + c, vf_mul(vf_load_first(row + c, lanes), vf_set(factor)), lanes);
    }
}

/* tile_rows: the number of positions in a tile that begins at `at`. seen: the number of keys in the tile at k_at that
 * query t sees. */
static inline int64_t tile_rows(const struct scores *a, int64_t at) {
    return a->time - at < TILE ? a->time - at : TILE;
}
static inline int64_t seen(const struct scores *a, int64_t t, int64_t k_at) {
    const int64_t n = (a->causal ? t + 1 : a->time) - k_at;
    return n < TILE ? n : TILE;
}

/* keys_end: the end of the tiles of keys that some query of a tile sees. queries_begin: the first tile of queries that
 * sees a tile of keys. */
static inline int64_t keys_end(const struct scores *a, int64_t q_at) { return a->causal ? q_at + 1 : a->time; }
static inline int64_t queries_begin(const struct scores *a, int64_t k_at) { return a->causal ? k_at : 0; }

static inline const float *mask_of_row(const struct scores *a, int64_t t, int64_t k_at, float *buf) {
    return VECTOR(mask_row)(a->mask, a->sample, a->first_element + t * a->time + k_at, TILE, buf);
}

/* Adds one more tile of keys to the softmax of the queries from q_at on. row_max (TILE) and sum (TILE) cover all tiles
 * so far. If the maximum of a row grows, its earlier sum and outputs are scaled down to the new maximum. */
static inline void tile_softmax(const struct scores *a, int64_t q_at, int64_t k_at, float *row_max, float *sum) {
    float buf[MASK_ROW_FLOATS(TILE)];
    for (int64_t i = 0; i < tile_rows(a, q_at); i++) {
        float *row = a->tile + i * TILE;
        const int64_t n = seen(a, q_at + i, k_at);
        const float here = a->scale * row_maximum(row, n), before = k_at ? row_max[i] : -INFINITY;
        row_max[i] = here > before ? here : before;
        const float added = row_exp(row, n, a->scale, row_max[i]);
        if (k_at == 0) {
            sum[i] = added;
        } else {
            const float factor = before < row_max[i] ? expf(before - row_max[i]) : 1;
            sum[i] = sum[i] * factor + added;
            if (factor < 1)
                row_scale(a->outputs + i * a->width, a->width, factor);
        }
        if (a->mask)
            multiply(row, mask_of_row(a, q_at + i, k_at, buf));
    }
}

/* Stores the outputs of the tile's queries and their lse, after the last tile of keys. */
static inline void tile_outputs(const struct scores *a, int64_t q_at, element *out, int64_t out_stride,
                                const float *row_max, const float *sum, float *lse) {
    for (int64_t i = 0; i < tile_rows(a, q_at); i++) {
        const vf by = vf_set(1 / sum[i]);
        for (int64_t c = 0; c < a->width; c += LANES) {
            const int64_t lanes = lanes_at(c, a->width);
            const vf gathered = vf_load_first(a->outputs + i * a->width + c, lanes);
            ve_store_first(out + (q_at + i) * out_stride + c, vf_mul(gathered, by), lanes);
        }
        lse[q_at + i] = row_max[i] + logf(sum[i]);
    }
}

#endif
