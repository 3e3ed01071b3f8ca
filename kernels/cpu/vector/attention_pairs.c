/* Attention in bf16 on processors with AVX512-BF16.
 *
 * The algorithm is as in attention.c. The difference is the multiply-add: one instruction multiplies pairs of bf16,
 * neighbours along the dimension that is summed, and adds both products to an fp32. This is twice the rate of fp32. All
 * operands are therefore laid out in 32-bit pairs:
 *   - along the head for the scores and dP: queries and gradients of outputs as they are, keys and values transposed
 *   - along positions for all other products: two rows interleaved, `interleave`
 *
 * Scores, softmax and sums are fp32. Probabilities and dS are rounded to bf16 before they are multiplied. If the width
 * of a head is odd, attention.c computes the op. */
#include "kernels/cpu/vector/attention.h"

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector/attention_place.h"
#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/images.h"
#include "kernels/cpu/vector/score_rows.h"
#include "kernels/cpu/vector/tile.h"

#include <math.h>
#include <omp.h>

/* A causal tile on the diagonal is computed in steps of this many rows, which leaves out most of the masked scores. */
enum { STEP = 32, PAIR_TILE = TILE / 2 };

/* One key head of one sample and one of its query heads. The panels of pairs are in the workspace of its thread. */
struct head {
    struct scores s;
    const element *q, *dout; /* (time, width), rows stride and out_stride apart */
    int64_t stride, out_stride;
    float *keys, *values; /* transposed by tile: (tiles, width / 2, TILE), 0 past the last position */
    float *row_q, *row_k, *row_v, *row_dout; /* interleaved: (time / 2, width) */
    float *dq, *dk, *dv;                     /* fp32 (time, width) */
    float *gradients;                        /* fp32 (TILE, TILE) */
    float *p, *ds;                           /* pairs: (TILE, TILE / 2) along keys */
    float *p_rows, *ds_rows;                 /* pairs: (TILE / 2, TILE) along queries */
    float *statistics;
};

static struct head head_new(const struct kernels *k, const struct attention_dims *d, const struct dropout *dropout,
                            const struct mask *mask, const struct place *at, void *workspace) {
    const int64_t panel = attention_panel(d), tile = TILE * TILE;
    float *w = (float *)((char *)workspace + (size_t)omp_get_thread_num() * attention_tile_bytes(d, k->precision));
    float *tiles = w + PANELS_NARROW * panel, *outputs = tiles + TILES_NARROW * tile;
    return (struct head){ .s = scores_of(d, dropout, mask, at->b, tiles, outputs),
                          .stride = at->stride,
                          .out_stride = at->out_stride,
                          .keys = w,
                          .values = w + panel,
                          .row_q = w + 2 * panel,
                          .row_k = w + 3 * panel,
                          .row_v = w + 4 * panel,
                          .row_dout = w + 5 * panel,
                          .dq = w + 6 * panel,
                          .dk = w + 7 * panel,
                          .dv = w + 8 * panel,
                          .gradients = tiles + tile,
                          .p = tiles + 2 * tile,
                          .ds = tiles + 2 * tile + tile / 2,
                          .p_rows = tiles + 3 * tile,
                          .ds_rows = tiles + 3 * tile + tile / 2,
                          .statistics = outputs + TILE * round_up(d->head, 16) };
}

static const float *pairs_of(const element *a) { return (const float *)(const void *)a; }

/* Transposes pairs along the head, tile by tile of positions. */
static void transpose_tiles(const struct head *a, float *to, const element *from) {
    const int64_t half = a->s.width / 2;
    for (int64_t at = 0; at < a->s.time; at += TILE) {
        if (tile_rows(&a->s, at) < TILE)
            memset(to + at * half, 0, (size_t)(TILE * half) * sizeof *to);
        VECTOR_ISA(tile_transpose)
        (to + at * half, TILE, pairs_of(from + at * a->stride), a->stride / 2, tile_rows(&a->s, at), half);
    }
}

/* Joins two vectors of 16-bit elements to one vector of pairs (low, high). */
static inline __m512i pair(__m256i low, __m256i high) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

/* Pairs of rows: to[(t / 2) width + c] = (from[t][c], from[t + 1][c]). A row past the last row counts as 0. */
static void interleave(const struct head *a, float *to, const element *from, int64_t stride) {
    for (int64_t t = 0; t < a->s.time; t += 2)
        for (int64_t c = 0; c < a->s.width; c += LANES) {
            const int64_t lanes = lanes_at(c, a->s.width);
            const __m256i low = vh_load_first(from + t * stride + c, lanes);
            const __m256i high = t + 1 < a->s.time ? vh_load_first(from + (t + 1) * stride + c, lanes)
                                                   : _mm256_setzero_si256();
            vf_store_first(to + t / 2 * a->s.width + c, _mm512_castsi512_ps(pair(low, high)), lanes);
        }
}

/* Rounds rows of an fp32 tile to bf16, with pairs along the row. */
static void round_rows(float *to, const float *from, int64_t rows) {
    for (int64_t i = 0; i < rows * TILE; i += LANES)
        _mm256_storeu_si256((__m256i *)(void *)(to + i / 2), vh_round(vf_load(from + i)));
}

/* Rounds rows of an fp32 tile to bf16, with pairs of adjacent rows. A single last row is paired with 0. */
static void round_row_pairs(float *to, const float *from, int64_t rows) {
    for (int64_t i = 0; i < rows; i += 2)
        for (int64_t s = 0; s < TILE; s += LANES) {
            const __m256i low = vh_round(vf_load(from + i * TILE + s));
            const __m256i high = i + 1 < rows ? vh_round(vf_load(from + (i + 1) * TILE + s)) : _mm256_setzero_si256();
            _mm512_storeu_si512(to + i / 2 * TILE + s, pair(low, high));
        }
}

static bool diagonal(const struct head *a, int64_t q_at, int64_t k_at) { return a->s.causal && q_at == k_at; }

/* to (rows, TILE) = the rows of `rows_from` times a transposed tile. On the diagonal only scores that the causal mask
 * keeps are computed, in whole steps. */
static void score_product(const struct head *a, float *to, const element *rows_from, int64_t stride, const float *tile,
                          int64_t rows, bool on_diagonal) {
    const int64_t step = on_diagonal ? STEP : TILE;
    for (int64_t i = 0; i < rows; i += step) {
        const int64_t m = rows - i < step ? rows - i : step, n = on_diagonal ? i + step : TILE;
        VECTOR_ISA(tile_product_pairs)
        (to + i * TILE, TILE, pairs_of(rows_from + i * stride), stride / 2, 1, tile, TILE, m, n, a->s.width / 2, false);
    }
}

/* c (rows, width) = or += a tile of bf16 (rows, TILE) times the interleaved rows of keys or values. */
static void key_product(const struct head *a, float *c, const float *tile, const float *interleaved, int64_t rows,
                        int64_t keys, bool on_diagonal, bool accumulate) {
    const int64_t step = on_diagonal ? STEP : TILE;
    for (int64_t i = 0; i < rows; i += step) {
        const int64_t m = rows - i < step ? rows - i : step, end = on_diagonal && i + step < keys ? i + step : keys;
        VECTOR_ISA(tile_product_pairs)
        (c + i * a->s.width, a->s.width, tile + i * PAIR_TILE, PAIR_TILE, 1, interleaved, a->s.width, m, a->s.width,
         (end + 1) / 2, accumulate);
    }
}

/* c (keys, width) = or += a tile, transposed, times the interleaved rows of queries or of gradients of outputs. */
static void query_product(const struct head *a, float *c, const float *tile, const float *interleaved, int64_t rows,
                          int64_t keys, bool on_diagonal, bool accumulate) {
    const int64_t step = on_diagonal ? STEP : TILE;
    for (int64_t s = 0; s < keys; s += step) {
        const int64_t m = keys - s < step ? keys - s : step, first = on_diagonal ? s / 2 : 0;
        VECTOR_ISA(tile_product_pairs)
        (c + s * a->s.width, a->s.width, tile + first * TILE + s, 1, TILE, interleaved + first * a->s.width, a->s.width,
         m, a->s.width, (rows + 1) / 2 - first, accumulate);
    }
}

static void forward_tile(const struct head *a, int64_t q_at, element *out, float *lse) {
    const int64_t rows = tile_rows(&a->s, q_at);
    float *row_max = a->statistics, *sum = a->statistics + TILE;
    for (int64_t k_at = 0; k_at < keys_end(&a->s, q_at); k_at += TILE) {
        const bool on_diagonal = diagonal(a, q_at, k_at);
        score_product(a, a->s.tile, a->q + q_at * a->stride, a->stride, a->keys + k_at * a->s.width / 2, rows,
                      on_diagonal);
        tile_softmax(&a->s, q_at, k_at, row_max, sum);
        round_rows(a->p, a->s.tile, rows);
        key_product(a, a->s.outputs, a->p, a->row_v + k_at / 2 * a->s.width, rows, tile_rows(&a->s, k_at), on_diagonal,
                    k_at > 0);
    }
    tile_outputs(&a->s, q_at, out, a->out_stride, row_max, sum, lse);
}

status_t VECTOR(attention_forward_pairs)(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                         const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                         struct err *e) {
    if (d->head % 2)
        return VECTOR(attention_forward)(k, out, lse, qkv, d, dropout, workspace, e);
    const struct mask mask = mask_of(dropout);
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int64_t i = 0; i < d->batch * d->kv_heads; i++) {
        const struct place p = place_of(d, i);
        struct head a = head_new(k, d, dropout, &mask, &p, workspace);
        transpose_tiles(&a, a.keys, AT(qkv, key_at(d, &p)));
        interleave(&a, a.row_v, AT(qkv, value_at(d, &p)), p.stride);
        for (int64_t h = p.shared * p.group; h < (p.shared + 1) * p.group; h++) {
            a.q = AT(qkv, packed_at(d, &p, h));
            a.s.first_element = h * d->time * d->time;
            for (int64_t at = 0; at < d->time; at += TILE)
                forward_tile(&a, at, AT(out, out_at(d, &p, h)), lse + (p.b * d->heads + h) * d->time);
        }
    }
    return ST_OK;
}

/* Turns scores into P (under the mask), and gradients, which hold dout V^T, into dS = scale P (mask dP - total). Both
 * are 0 past the keys that a row sees. */
static void tile_gradients(const struct head *a, const float *lse, int64_t q_at, int64_t k_at, int64_t rows) {
    float buf[MASK_ROW_FLOATS(TILE)];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t t = q_at + i, n = seen(&a->s, t, k_at);
        float *p = a->s.tile + i * TILE, *ds = a->gradients + i * TILE;
        const float *kept = a->s.mask ? mask_of_row(&a->s, t, k_at, buf) : NULL;
        (void)row_exp(p, n, a->s.scale, lse[t]);
        for (int64_t s = 0; s < TILE; s += LANES) {
            vf dp = s < n ? vf_load_first(ds + s, lanes_at(s, n)) : vf_set(0);
            if (kept)
                dp = vf_mul(dp, vf_load(kept + s));
            const vf by = vf_mul(vf_load(p + s), vf_set(a->s.scale));
            vf_store(ds + s, vf_mul(by, vf_sub(dp, vf_set(a->statistics[t]))));
        }
        if (kept)
            multiply(p, kept);
    }
}

/* Adds the contribution of one tile of scores to dq, dk and dv. If `add` is false, this is the first tile that
 * contributes to dk and dv, and it overwrites them. */
static void backward_tile(const struct head *a, const float *lse, int64_t q_at, int64_t k_at, bool add) {
    const int64_t rows = tile_rows(&a->s, q_at), keys = tile_rows(&a->s, k_at), w = a->s.width;
    const bool on_diagonal = diagonal(a, q_at, k_at);
    score_product(a, a->s.tile, a->q + q_at * a->stride, a->stride, a->keys + k_at * w / 2, rows, on_diagonal);
    score_product(a, a->gradients, a->dout + q_at * a->out_stride, a->out_stride, a->values + k_at * w / 2, rows,
                  on_diagonal);
    tile_gradients(a, lse, q_at, k_at, rows);
    round_row_pairs(a->p_rows, a->s.tile, rows);
    round_row_pairs(a->ds_rows, a->gradients, rows);
    round_rows(a->ds, a->gradients, rows);
    query_product(a, a->dv + k_at * w, a->p_rows, a->row_dout + q_at / 2 * w, rows, keys, on_diagonal, add);
    query_product(a, a->dk + k_at * w, a->ds_rows, a->row_q + q_at / 2 * w, rows, keys, on_diagonal, add);
    key_product(a, a->dq + q_at * w, a->ds, a->row_k + k_at / 2 * w, rows, keys, on_diagonal, k_at > 0);
}

/* Rounds a gradient (time, width) to bf16 in its tensor. */
static void narrow(const struct head *a, element *to, int64_t stride, const float *from) {
    for (int64_t t = 0; t < a->s.time; t++)
        for (int64_t c = 0; c < a->s.width; c += LANES) {
            const int64_t lanes = lanes_at(c, a->s.width);
            ve_store_first(to + t * stride + c, vf_load_first(from + t * a->s.width + c, lanes), lanes);
        }
}

status_t VECTOR(attention_backward_pairs)(const struct kernels *k, element_t *dqkv, const element_t *dout,
                                          const element_t *qkv, const element_t *out, const float *lse,
                                          const struct attention_dims *d, const struct dropout *dropout,
                                          void *workspace, struct err *e) {
    if (d->head % 2)
        return VECTOR(attention_backward)(k, dqkv, dout, qkv, out, lse, d, dropout, workspace, e);
    const struct mask mask = mask_of(dropout);
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int64_t i = 0; i < d->batch * d->kv_heads; i++) {
        const struct place p = place_of(d, i);
        struct head a = head_new(k, d, dropout, &mask, &p, workspace);
        const int64_t first = p.shared * p.group;
        transpose_tiles(&a, a.keys, AT(qkv, key_at(d, &p)));
        transpose_tiles(&a, a.values, AT(qkv, value_at(d, &p)));
        interleave(&a, a.row_k, AT(qkv, key_at(d, &p)), p.stride);
        for (int64_t h = first; h < first + p.group; h++) {
            const element *out_h = AT(out, out_at(d, &p, h));
            a.q = AT(qkv, packed_at(d, &p, h));
            a.dout = AT(dout, out_at(d, &p, h));
            a.s.first_element = h * d->time * d->time;
            interleave(&a, a.row_q, a.q, p.stride);
            interleave(&a, a.row_dout, a.dout, p.out_stride);
            for (int64_t t = 0; t < d->time; t++)
                a.statistics[t] = dot(a.dout + t * p.out_stride, out_h + t * p.out_stride, d->head);
            for (int64_t k_at = 0; k_at < d->time; k_at += TILE)
                for (int64_t q_at = queries_begin(&a.s, k_at); q_at < d->time; q_at += TILE)
                    backward_tile(&a, lse + (p.b * d->heads + h) * d->time, q_at, k_at,
                                  h > first || q_at > queries_begin(&a.s, k_at));
            narrow(&a, AT(dqkv, packed_at(d, &p, h)), p.stride, a.dq);
        }
        narrow(&a, AT(dqkv, key_at(d, &p)), p.stride, a.dk);
        narrow(&a, AT(dqkv, value_at(d, &p)), p.stride, a.dv);
    }
    return ST_OK;
}

void VECTOR(pairs_table)(struct cpu *c) {
    c->table.attention_forward = VECTOR(attention_forward_pairs);
    c->table.attention_backward = VECTOR(attention_backward_pairs);
    c->table.convolution_backward_weight = VECTOR(convolution_backward_weight_pairs);
}
