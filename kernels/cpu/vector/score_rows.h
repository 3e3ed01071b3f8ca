/* Rows of a tile of scores: (TILE) fp32, the first n of which are keys that the row's query sees. */
#ifndef KERNELS_CPU_VECTOR_SCORE_ROWS_H
#define KERNELS_CPU_VECTOR_SCORE_ROWS_H

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/vector/math.h"

#include <math.h>

static inline void multiply(float *row, const float *by) {
    for (int64_t s = 0; s < TILE; s += LANES)
        vf_store(row + s, vf_mul(vf_load(row + s), vf_load(by + s)));
}

/* Turns a row of scores into exp(scale score - most), 0 past the keys it sees, and gives their sum. */
static inline float row_exp(float *row, int64_t n, float scale, float most) {
    vf sum = vf_set(0);
    for (int64_t s = 0; s < TILE; s += LANES) {
        if (s >= n) {
            vf_store(row + s, vf_set(0));
            continue;
        }
        const vf all = vf_exp(vf_fma(vf_load(row + s), vf_set(scale), vf_set(-most)));
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

#endif
