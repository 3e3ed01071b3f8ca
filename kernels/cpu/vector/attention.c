/* Attention by tiles of 64 queries x 64 keys, with an online softmax; the scores are never stored as a whole.
 *
 * One thread computes one (batch, key head) with all query heads of its group. Keys are transposed tile by tile first.
 *
 * Forward, for each tile of queries and each tile of keys that it sees:
 *   1. the tile of raw scores Q K^T
 *   2. tile_softmax: exp(scale score - row maximum so far); a new maximum scales down the outputs so far
 *   3. outputs += P V
 * After the last tile of keys, outputs are divided by the row's sum, and lse is stored for backward.
 *
 * Backward computes P again from the scores and lse. For each tile: dP = dout V^T, dS = scale P (mask dP - total) with
 * total = dout . out of the row, then dv += P^T dout, dk += dS^T Q, dq += dS K. */
#include "kernels/cpu/vector/attention.h"

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/vector/attention_place.h"
#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/elementwise.h"
#include "kernels/cpu/vector/score_rows.h"
#include "kernels/cpu/vector/tile.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* One query head of one sample: its tensors in fp32, and the workspace of its thread (see attention_tile.h). fp32 reads
 * the packed tensors in place; elements of 16 bits are first converted to fp32 panels. */
struct head {
    struct scores s;
    const float *q, *k, *v; /* (time, width), rows `stride` apart */
    int64_t stride;
    float *keys, *values; /* transposed by tile of keys: (tiles, width, TILE), 0 past the last key */
    float *gradients, *statistics, *panels;
};

static struct head head_new(const struct kernels *k, const struct attention_dims *d, const struct dropout *dropout,
                            const struct mask *mask, const struct place *p, void *workspace) {
    const int64_t panel = attention_panel(d);
    float *w = (float *)((char *)workspace + (size_t)omp_get_thread_num() * attention_tile_bytes(d, k->precision));
    float *tiles = w + 2 * panel, *outputs = tiles + 2 * TILE * TILE;
    float *statistics = outputs + TILE * round_up(d->head, 16);
    return (struct head){ .s = scores_of(d, dropout, mask, p->b, tiles, outputs),
                          .stride = sizeof(element) == 4 ? p->stride : d->head,
                          .keys = w,
                          .values = w + panel,
                          .gradients = tiles + TILE * TILE,
                          .statistics = statistics,
                          .panels = statistics + 2 * round_up(d->time, TILE) };
}

enum { PANEL_Q, PANEL_K, PANEL_V, PANEL_DOUT, PANEL_DQ, PANEL_DK, PANEL_DV };

#ifndef ELEMENT_FP32
static float *panel_of(const struct head *a, int which) {
    return a->panels + which * round_up(a->s.time, TILE) * round_up(a->s.width, 16);
}
#endif

/* Returns a (time, width) part of a tensor in fp32, with rows `ret_stride` apart: the tensor itself, or a panel. */
static const float *in_fp32(const struct head *a, int which, const element *from, int64_t stride, int64_t *ret_stride) {
#ifdef ELEMENT_FP32
    (void)a, (void)which;
    *ret_stride = stride;
    return from;
#else
    float *to = panel_of(a, which);
    for (int64_t t = 0; t < a->s.time; t++)
        VECTOR(convert_row_to_fp32)(to + t * a->s.width, from + t * stride, a->s.width);
    *ret_stride = a->s.width;
    return to;
#endif
}

/* Returns the fp32 memory in which a gradient is summed, with the layout of `in_fp32`. store_gradient stores the sum
 * in its tensor. */
static float *gradient_scratch(const struct head *a, int which, element *tensor) {
#ifdef ELEMENT_FP32
    (void)a, (void)which;
    return tensor;
#else
    (void)tensor;
    return panel_of(a, which);
#endif
}

static void store_gradient(const struct head *a, element *tensor, int64_t stride, const float *from) {
#ifdef ELEMENT_FP32
    (void)a, (void)tensor, (void)stride, (void)from;
#else
    for (int64_t t = 0; t < a->s.time; t++)
        VECTOR(convert_row)(tensor + t * stride, from + t * a->s.width, a->s.width);
#endif
}

static void transpose_tiles(const struct head *a, float *to, const float *from) {
    for (int64_t at = 0; at < a->s.time; at += TILE) {
        if (tile_rows(&a->s, at) < TILE)
            memset(to + at * a->s.width, 0, (size_t)(TILE * a->s.width) * sizeof *to);
        VECTOR_ISA(tile_transpose)
        (to + at * a->s.width, TILE, from + at * a->stride, a->stride, tile_rows(&a->s, at), a->s.width);
    }
}

/* Computes the raw scores (rows, TILE) of the queries from q_at on and the keys from k_at on. */
static void tile_scores(const struct head *a, int64_t q_at, int64_t k_at, int64_t rows) {
    VECTOR_ISA(tile_product)
    (a->s.tile, TILE, a->q + q_at * a->stride, a->stride, 1, a->keys + k_at * a->s.width, TILE, rows, TILE, a->s.width,
     false);
}

static void forward_tile(const struct head *a, int64_t q_at, element *out, int64_t out_stride, float *lse) {
    const int64_t rows = tile_rows(&a->s, q_at);
    float *row_max = a->statistics, *sum = a->statistics + TILE;
    for (int64_t k_at = 0; k_at < keys_end(&a->s, q_at); k_at += TILE) {
        tile_scores(a, q_at, k_at, rows);
        tile_softmax(&a->s, q_at, k_at, row_max, sum);
        VECTOR_ISA(tile_product)
        (a->s.outputs, a->s.width, a->s.tile, TILE, 1, a->v + k_at * a->stride, a->stride, rows, a->s.width,
         tile_rows(&a->s, k_at), k_at > 0);
    }
    tile_outputs(&a->s, q_at, out, out_stride, row_max, sum, lse);
}

status_t VECTOR(attention_forward)(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                   const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                   struct err *e) {
    (void)e;
    const struct mask mask = mask_of(dropout);
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int64_t i = 0; i < d->batch * d->kv_heads; i++) {
        const struct place p = place_of(d, i);
        struct head a = head_new(k, d, dropout, &mask, &p, workspace);
        a.k = in_fp32(&a, PANEL_K, AT(qkv, key_at(d, &p)), p.stride, &a.stride);
        a.v = in_fp32(&a, PANEL_V, AT(qkv, value_at(d, &p)), p.stride, &a.stride);
        transpose_tiles(&a, a.keys, a.k);
        for (int64_t h = p.shared * p.group; h < (p.shared + 1) * p.group; h++) {
            a.q = in_fp32(&a, PANEL_Q, AT(qkv, packed_at(d, &p, h)), p.stride, &a.stride);
            a.s.first_element = h * d->time * d->time;
            for (int64_t at = 0; at < d->time; at += TILE)
                forward_tile(&a, at, AT(out, out_at(d, &p, h)), p.out_stride, lse + (p.b * d->heads + h) * d->time);
        }
    }
    return ST_OK;
}

/* The additional tensors of backward: dout and the gradients in fp32. dq, dk and dv have the stride of q. */
struct reverse {
    const float *dout, *lse;
    int64_t dout_stride;
    float *dq, *dk, *dv;
    bool more; /* dk and dv already hold the sums of earlier heads of the group */
};

/* Turns scores into P (under the mask), and gradients, which hold dout V^T, into dS = scale P (mask dP - total). */
static void tile_gradients(const struct head *a, const struct reverse *r, int64_t q_at, int64_t k_at, int64_t rows) {
    float buf[MASK_ROW_FLOATS(TILE)];
    const float *total = a->statistics;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t t = q_at + i;
        float *p = a->s.tile + i * TILE, *ds = a->gradients + i * TILE;
        const float *kept = a->s.mask ? mask_of_row(&a->s, t, k_at, buf) : NULL;
        (void)row_exp(p, seen(&a->s, t, k_at), a->s.scale, r->lse[t]);
        if (kept)
            multiply(ds, kept);
        for (int64_t s = 0; s < TILE; s += LANES) {
            const vf by = vf_mul(vf_load(p + s), vf_set(a->s.scale));
            vf_store(ds + s, vf_mul(by, vf_sub(vf_load(ds + s), vf_set(total[t]))));
        }
        if (kept)
            multiply(p, kept);
    }
}

/* Adds the contribution of one tile of scores to dq, dk and dv. In the first head of the group, the first tile of
 * queries that sees a tile of keys overwrites dk and dv. The first tile of keys overwrites dq. */
static void backward_tile(const struct head *a, const struct reverse *r, int64_t q_at, int64_t k_at) {
    const int64_t rows = tile_rows(&a->s, q_at), keys = tile_rows(&a->s, k_at);
    const float *dout = r->dout + q_at * r->dout_stride;
    const bool add = r->more || q_at > queries_begin(&a->s, k_at);
    tile_scores(a, q_at, k_at, rows);
    VECTOR_ISA(tile_product)
    (a->gradients, TILE, dout, r->dout_stride, 1, a->values + k_at * a->s.width, TILE, rows, TILE, a->s.width, false);
    tile_gradients(a, r, q_at, k_at, rows);
    VECTOR_ISA(tile_product)
    (r->dv + k_at * a->stride, a->stride, a->s.tile, 1, TILE, dout, r->dout_stride, keys, a->s.width, rows, add);
    VECTOR_ISA(tile_product)
    (r->dk + k_at * a->stride, a->stride, a->gradients, 1, TILE, a->q + q_at * a->stride, a->stride, keys, a->s.width,
     rows, add);
    VECTOR_ISA(tile_product)
    (r->dq + q_at * a->stride, a->stride, a->gradients, TILE, 1, a->k + k_at * a->stride, a->stride, rows, a->s.width,
     keys, k_at > 0);
}

static void backward_head(const struct head *a, const struct reverse *r) {
    for (int64_t k_at = 0; k_at < a->s.time; k_at += TILE)
        for (int64_t q_at = queries_begin(&a->s, k_at); q_at < a->s.time; q_at += TILE)
            backward_tile(a, r, q_at, k_at);
}

/* Backward for one query head of the group. dk and dv accumulate over the heads of the group. */
static void backward_query_head(struct head *a, struct reverse *r, const struct attention_dims *d,
                                const struct place *p, int64_t h, element_t *dqkv, const element_t *dout,
                                const element_t *qkv, const element_t *out) {
    const element *dout_h = AT(dout, out_at(d, p, h)), *out_h = AT(out, out_at(d, p, h));
    element *dq = AT(dqkv, packed_at(d, p, h));
    a->q = in_fp32(a, PANEL_Q, AT(qkv, packed_at(d, p, h)), p->stride, &a->stride);
    a->s.first_element = h * d->time * d->time;
    r->dout = in_fp32(a, PANEL_DOUT, dout_h, p->out_stride, &r->dout_stride);
    r->dq = gradient_scratch(a, PANEL_DQ, dq);
    for (int64_t t = 0; t < a->s.time; t++)
        a->statistics[t] = dot(dout_h + t * p->out_stride, out_h + t * p->out_stride, a->s.width);
    backward_head(a, r);
    store_gradient(a, dq, p->stride, r->dq);
    r->more = true;
}

status_t VECTOR(attention_backward)(const struct kernels *k, element_t *dqkv, const element_t *dout,
                                    const element_t *qkv, const element_t *out, const float *lse,
                                    const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                    struct err *e) {
    (void)e;
    const struct mask mask = mask_of(dropout);
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int64_t i = 0; i < d->batch * d->kv_heads; i++) {
        const struct place p = place_of(d, i);
        struct head a = head_new(k, d, dropout, &mask, &p, workspace);
        element *dk = AT(dqkv, key_at(d, &p)), *dv = AT(dqkv, value_at(d, &p));
        struct reverse r = { .dk = gradient_scratch(&a, PANEL_DK, dk), .dv = gradient_scratch(&a, PANEL_DV, dv) };
        a.k = in_fp32(&a, PANEL_K, AT(qkv, key_at(d, &p)), p.stride, &a.stride);
        a.v = in_fp32(&a, PANEL_V, AT(qkv, value_at(d, &p)), p.stride, &a.stride);
        transpose_tiles(&a, a.keys, a.k);
        transpose_tiles(&a, a.values, a.v);
        for (int64_t h = p.shared * p.group; h < (p.shared + 1) * p.group; h++) {
            r.lse = lse + (p.b * d->heads + h) * d->time;
            backward_query_head(&a, &r, d, &p, h, dqkv, dout, qkv, out);
        }
        store_gradient(&a, dk, p.stride, r.dk);
        store_gradient(&a, dv, p.stride, r.dv);
    }
    return ST_OK;
}
