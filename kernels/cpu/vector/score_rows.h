/* Tiles of scores of one query head of one sample, and how their rows become probabilities: (TILE) fp32 a row, one of
 * a query, the first numbers of which are keys that it sees. */
#ifndef KERNELS_CPU_VECTOR_SCORE_ROWS_H
#define KERNELS_CPU_VECTOR_SCORE_ROWS_H

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/math.h"

#include <math.h>

struct scores {
    float *tile;    /* (TILE, TILE): one tile of queries by one of keys */
    float *outputs; /* (TILE, width): what the tile's queries have gathered so far */
    int64_t width, time;
    bool causal;
    float scale;
    const struct mask *mask; /* NULL: no dropout */
    int64_t sample, first_element;
};

/* Of sample b; the caller sets first_element for each head. */
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

/* Turns a row of scores into exp(scale score - most), 0 past the keys it sees, and gives their sum. No score is so much
 * above `most` that its exp is not finite. */
static inline float row_exp(float *row, int64_t n, float scale, float most) {
    const vf by = vf_set(scale * LOG2E), less = vf_set(-most * LOG2E);
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

static inline float row_most(const float *row, int64_t n) {
    const vf least = vf_set(-INFINITY);
    vf most = least;
    for (int64_t s = 0; s < n; s += LANES)
        most = vf_max(most, vf_first_of(vf_load(row + s), least, lanes_at(s, n)));
    return vf_most(most);
}

static inline void row_scale(float *row, int64_t n, float factor) {
    for (int64_t c = 0; c < n; c += LANES) {
        const int64_t lanes = lanes_at(c, n);
        vf_store_first(row + c, vf_mul(vf_load_first(row + c, lanes), vf_set(factor)), lanes);
    }
}

/* The positions of a tile that begins at one, and how many keys of a tile the query t sees. */
static inline int64_t tile_rows(const struct scores *a, int64_t at) {
    return a->time - at < TILE ? a->time - at : TILE;
}
static inline int64_t seen(const struct scores *a, int64_t t, int64_t k_at) {
    const int64_t n = (a->causal ? t + 1 : a->time) - k_at;
    return n < TILE ? n : TILE;
}

/* Where the tiles of keys end that some query of a tile sees, and the first tile of queries that sees a tile of keys.
 */
static inline int64_t keys_end(const struct scores *a, int64_t q_at) { return a->causal ? q_at + 1 : a->time; }
static inline int64_t queries_begin(const struct scores *a, int64_t k_at) { return a->causal ? k_at : 0; }

static inline const float *mask_of_row(const struct scores *a, int64_t t, int64_t k_at, float *buf) {
    return VECTOR(mask_row)(a->mask, a->sample, a->first_element + t * a->time + k_at, TILE, buf);
}

/* The softmax of one more tile of keys for the queries from q_at: most (TILE) and sum (TILE) are those of all tiles so
 * far, and what was added up under an older maximum is scaled down to the new one. */
static inline void tile_softmax(const struct scores *a, int64_t q_at, int64_t k_at, float *most, float *sum) {
    float buf[MASK_ROW_FLOATS(TILE)];
    for (int64_t i = 0; i < tile_rows(a, q_at); i++) {
        float *row = a->tile + i * TILE;
        const int64_t n = seen(a, q_at + i, k_at);
        const float here = a->scale * row_most(row, n), before = k_at ? most[i] : -INFINITY;
        most[i] = here > before ? here : before;
        const float added = row_exp(row, n, a->scale, most[i]);
        if (k_at == 0) {
            sum[i] = added;
        } else {
            const float factor = before < most[i] ? expf(before - most[i]) : 1;
            sum[i] = sum[i] * factor + added;
            if (factor < 1)
                row_scale(a->outputs + i * a->width, a->width, factor);
        }
        if (a->mask)
            multiply(row, mask_of_row(a, q_at + i, k_at, buf));
    }
}

/* After the last tile of keys: the outputs of the tile's queries, and their lse. */
static inline void tile_outputs(const struct scores *a, int64_t q_at, element *out, int64_t out_stride,
                                const float *most, const float *sum, float *lse) {
    for (int64_t i = 0; i < tile_rows(a, q_at); i++) {
        const vf by = vf_set(1 / sum[i]);
        for (int64_t c = 0; c < a->width; c += LANES) {
            const int64_t lanes = lanes_at(c, a->width);
            const vf gathered = vf_load_first(a->outputs + i * a->width + c, lanes);
            ve_store_first(out + (q_at + i) * out_stride + c, vf_mul(gathered, by), lanes);
        }
        lse[q_at + i] = most[i] + logf(sum[i]);
    }
}

#endif
