#include "kernels/cpu/vector/attention.h"

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/tile.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* One head of one sample: strided views of the packed tensors, and its thread's workspace (see attention_tile.h). */
struct head {
    const float *q, *k, *v; /* (time, width), rows `stride` apart */
    int64_t stride, out_stride, width, time;
    float scale;
    const struct mask *mask; /* NULL: no dropout */
    int64_t sample, first_element;
    float *keys, *values; /* transposed by tile of keys: (tiles, width, TILE), 0 past the last key */
    float *scores, *gradients, *outputs, *statistics;
};

static struct head head_of(const float *qkv, const struct attention_dims *d, const struct dropout *dropout,
                           const struct mask *mask, int64_t i, void *workspace) {
    const int64_t width = d->width / d->heads, b = i / d->heads, h = i % d->heads;
    const int64_t transposed = round_up(d->time, TILE) * round_up(width, 16);
    const float *q = qkv + b * d->time * 3 * d->width + h * width;
    float *w = (float *)((char *)workspace + (size_t)omp_get_thread_num() * attention_tile_bytes(d));
    return (struct head){ .q = q,
                          .k = q + d->width,
                          .v = q + 2 * d->width,
                          .stride = 3 * d->width,
                          .out_stride = d->width,
                          .width = width,
                          .time = d->time,
                          .scale = 1.0f / sqrtf((float)width),
                          .mask = dropout->probability > 0 ? mask : NULL,
                          .sample = dropout->first_sample + b,
                          .first_element = h * d->time * d->time,
                          .keys = w,
                          .values = w + transposed,
                          .scores = w + 2 * transposed,
                          .gradients = w + 2 * transposed + TILE * TILE,
                          .outputs = w + 2 * transposed + 2 * TILE * TILE,
                          .statistics = w + 2 * transposed + 2 * TILE * TILE + TILE * round_up(width, 16) };
}

static int64_t tile_rows(const struct head *a, int64_t at) { return a->time - at < TILE ? a->time - at : TILE; }

static void transpose_tiles(const struct head *a, float *to, const float *from) {
    for (int64_t at = 0; at < a->time; at += TILE) {
        if (tile_rows(a, at) < TILE)
            memset(to + at * a->width, 0, (size_t)(TILE * a->width) * sizeof *to);
        VECTOR(tile_transpose)(to + at * a->width, TILE, from + at * a->stride, a->stride, tile_rows(a, at), a->width);
    }
}

/* The raw scores of the queries from q_at and the keys from k_at: (rows, TILE). */
static void tile_scores(const struct head *a, int64_t q_at, int64_t k_at, int64_t rows) {
    VECTOR(tile_product)
    (a->scores, TILE, a->q + q_at * a->stride, a->stride, 1, a->keys + k_at * a->width, TILE, rows, TILE, a->width,
     false);
}

/* How many keys of a tile the query t sees. */
static int64_t seen(int64_t t, int64_t k_at) { return t - k_at < TILE - 1 ? t - k_at + 1 : TILE; }

static const float *mask_of_row(const struct head *a, int64_t t, int64_t k_at, float *buf) {
    return VECTOR(mask_row)(a->mask, a->sample, a->first_element + t * a->time + k_at, TILE, buf);
}

static void multiply(float *row, const float *by) {
    for (int64_t s = 0; s < TILE; s += LANES)
        vf_store(row + s, vf_mul(vf_load(row + s), vf_load(by + s)));
}

/* Turns a row of scores into exp(scale score - most), 0 past the keys it sees, and gives their sum. */
static float row_exp(float *row, int64_t n, float scale, float most) {
    vf sum = vf_set(0);
    for (int64_t s = 0; s < TILE; s += LANES) {
        if (s >= n) {
            vf_store(row + s, vf_set(0));
            continue;
        }
        vf_store(row + s, vf_exp(vf_fma(vf_load(row + s), vf_set(scale), vf_set(-most))));
        if (n - s < LANES) {
            const vf kept = vf_load_first(row + s, n - s);
            vf_store(row + s, kept);
        }
        sum = vf_add(sum, vf_load(row + s));
    }
    return vf_sum(sum);
}

static float row_most(const float *row, int64_t n) {
    float most = -INFINITY;
    vf all = vf_set(-INFINITY);
    int64_t s = 0;
    for (; s + LANES <= n; s += LANES)
        all = vf_max(all, vf_load(row + s));
    for (; s < n; s++)
        most = row[s] > most ? row[s] : most;
    const float other = vf_most(all);
    return other > most ? other : most;
}

static void row_scale(float *row, int64_t n, float factor) {
    for (int64_t c = 0; c < n; c += LANES) {
        const int64_t lanes = lanes_at(c, n);
        vf_store_first(row + c, vf_mul(vf_load_first(row + c, lanes), vf_set(factor)), lanes);
    }
}

/* The softmax of one more tile of keys for the queries from q_at: most (TILE) and sum (TILE) are those of all tiles so
 * far, and what was added up under an older maximum is scaled down to the new one. */
static void tile_softmax(const struct head *a, int64_t q_at, int64_t k_at, int64_t rows, float *most, float *sum) {
    float buf[MASK_ROW_FLOATS(TILE)];
    for (int64_t i = 0; i < rows; i++) {
        float *row = a->scores + i * TILE;
        const int64_t n = seen(q_at + i, k_at);
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

static void forward_tile(const struct head *a, int64_t q_at, float *out, float *lse) {
    const int64_t rows = tile_rows(a, q_at);
    float *most = a->statistics, *sum = a->statistics + TILE;
    for (int64_t k_at = 0; k_at <= q_at; k_at += TILE) {
        tile_scores(a, q_at, k_at, rows);
        tile_softmax(a, q_at, k_at, rows, most, sum);
        VECTOR(tile_product)
        (a->outputs, a->width, a->scores, TILE, 1, a->v + k_at * a->stride, a->stride, rows, a->width,
         tile_rows(a, k_at), k_at > 0);
    }
    for (int64_t i = 0; i < rows; i++) {
        row_scale(a->outputs + i * a->width, a->width, 1 / sum[i]);
        memcpy(out + (q_at + i) * a->out_stride, a->outputs + i * a->width, (size_t)a->width * sizeof *out);
        lse[q_at + i] = most[i] + logf(sum[i]);
    }
}

status_t VECTOR(attention_forward)(const struct kernels *k, float *out, float *lse, const float *qkv,
                                   const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                   struct err *e) {
    (void)e;
    const struct mask mask = mask_of(dropout);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < d->batch * d->heads; i++) {
        const struct head a = head_of(qkv, d, dropout, &mask, i, workspace);
        float *o = out + i / d->heads * d->time * d->width + i % d->heads * a.width;
        transpose_tiles(&a, a.keys, a.k);
        for (int64_t at = 0; at < d->time; at += TILE)
            forward_tile(&a, at, o, lse + i * d->time);
    }
    return ST_OK;
}

/* What backward has besides: the gradients, laid out as their tensors. */
struct reverse {
    const float *dout, *out, *lse;
    float *dq, *dk, *dv;
};

static float dot(const float *x, const float *y, int64_t n) {
    vf sum = vf_set(0);
    for (int64_t c = 0; c < n; c += LANES) {
        const int64_t lanes = lanes_at(c, n);
        sum = vf_fma(vf_load_first(x + c, lanes), vf_load_first(y + c, lanes), sum);
    }
    return vf_sum(sum);
}

/* scores become P (under the mask), gradients, which hold dout V^T, become dS = scale P (mask dP - total). */
static void tile_gradients(const struct head *a, const struct reverse *r, int64_t q_at, int64_t k_at, int64_t rows) {
    float buf[MASK_ROW_FLOATS(TILE)];
    const float *total = a->statistics;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t t = q_at + i;
        float *p = a->scores + i * TILE, *ds = a->gradients + i * TILE;
        const float *kept = a->mask ? mask_of_row(a, t, k_at, buf) : NULL;
        (void)row_exp(p, seen(t, k_at), a->scale, r->lse[t]);
        if (kept)
            multiply(ds, kept);
        for (int64_t s = 0; s < TILE; s += LANES) {
            const vf by = vf_mul(vf_load(p + s), vf_set(a->scale));
            vf_store(ds + s, vf_mul(by, vf_sub(vf_load(ds + s), vf_set(total[t]))));
        }
        if (kept)
            multiply(p, kept);
    }
}

/* The share of one tile of scores in dq, dk and dv. The first tile of queries that a tile of keys meets (its own) sets
 * dk and dv, the first tile of keys sets dq. */
static void backward_tile(const struct head *a, const struct reverse *r, int64_t q_at, int64_t k_at) {
    const int64_t rows = tile_rows(a, q_at), keys = tile_rows(a, k_at);
    const float *dout = r->dout + q_at * a->out_stride;
    tile_scores(a, q_at, k_at, rows);
    VECTOR(tile_product)
    (a->gradients, TILE, dout, a->out_stride, 1, a->values + k_at * a->width, TILE, rows, TILE, a->width, false);
    tile_gradients(a, r, q_at, k_at, rows);
    VECTOR(tile_product)
    (r->dv + k_at * a->stride, a->stride, a->scores, 1, TILE, dout, a->out_stride, keys, a->width, rows, q_at > k_at);
    VECTOR(tile_product)
    (r->dk + k_at * a->stride, a->stride, a->gradients, 1, TILE, a->q + q_at * a->stride, a->stride, keys, a->width,
     rows, q_at > k_at);
    VECTOR(tile_product)
    (r->dq + q_at * a->stride, a->stride, a->gradients, TILE, 1, a->k + k_at * a->stride, a->stride, rows, a->width,
     keys, k_at > 0);
}

static void backward_head(const struct head *a, const struct reverse *r) {
    transpose_tiles(a, a->keys, a->k);
    transpose_tiles(a, a->values, a->v);
    for (int64_t t = 0; t < a->time; t++)
        a->statistics[t] = dot(r->dout + t * a->out_stride, r->out + t * a->out_stride, a->width);
    for (int64_t k_at = 0; k_at < a->time; k_at += TILE)
        for (int64_t q_at = k_at; q_at < a->time; q_at += TILE)
            backward_tile(a, r, q_at, k_at);
}

status_t VECTOR(attention_backward)(const struct kernels *k, float *dqkv, const float *dout, const float *qkv,
                                    const float *out, const float *lse, const struct attention_dims *d,
                                    const struct dropout *dropout, void *workspace, struct err *e) {
    (void)e;
    const struct mask mask = mask_of(dropout);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < d->batch * d->heads; i++) {
        const struct head a = head_of(qkv, d, dropout, &mask, i, workspace);
        const int64_t at = i / d->heads * d->time * d->width + i % d->heads * a.width;
        float *dq = dqkv + (a.q - qkv);
        const struct reverse r = { dout + at, out + at, lse + i * d->time, dq, dq + d->width, dq + 2 * d->width };
        backward_head(&a, &r);
    }
    return ST_OK;
}
