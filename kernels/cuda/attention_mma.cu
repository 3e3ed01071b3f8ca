/* Flash attention (Dao, arXiv 2307.08691) on the matrix units: no score is ever written to global memory.
 *
 * Forward: a block owns 64 queries of a head and visits all tiles of keys in order. For each tile it computes
 * scores, updates a running maximum and a running sum of exponentials per query, rescales the output so far, and
 * adds the tile's weights times values. At the end it divides by the sum and stores lse = max + log(sum).
 *
 * Backward computes the probabilities again from lse, in two kernels, so that no sum needs atomic additions.
 * attention_backward_queries owns 64 queries and sums dq over the keys. attention_backward_keys owns 64 keys and
 * sums dk and dv over the queries of all heads that share these keys.
 *
 * A tile is copied to shared memory in the background while the block computes. Each sum has one owner and a fixed
 * order, so the bits do not depend on the grid. */
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_tile.cuh"

/* Exponentials are powers of 2, because the device has an instruction for these. */
static constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* In backward: how many positions of the other side a tile has. 48 KiB of shared memory and the registers of a lane
 * must hold them beside the block's own two tiles. Narrow heads leave space for two stages. */
template <int D> constexpr int KEYS = D == 64 ? 64 : 32;
template <int D> constexpr int STAGES = D == 64 ? 2 : 1;
static constexpr int QUERIES = 32;

__device__ __forceinline__ float over_quad(float x, bool take_max) {
#pragma unroll
    for (int other = 1; other < 4; other *= 2) {
        const float y = __shfl_xor_sync(0xffffffffu, x, other);
        x = take_max ? fmaxf(x, y) : x + y;
    }
    return x;
}

/* --- forward ---*/

/* The state of rows g and g + 8 in one lane. */
template <int D> struct softmax_state {
    float out[D / 8][4];
    float max[2], sum[2]; /* the maximum of scaled scores; the sum of exponentials, of this lane only */
};

/* Turns the scores s of the keys from `first` on into weights, and updates the state. */
template <int D>
__device__ __forceinline__ void online_softmax(softmax_state<D> &r, float (&s)[OWN / 8][4], int first_query, int first,
                                               int b, int h, const struct attention &a) {
    const float scale = a.scale * LOG2_E;
    const int g = lane() / 4, t = lane() % 4;
    const bool edge = first + OWN > a.time || (a.causal && first + OWN > first_query + warp_row());
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int query = first_query + warp_row() + g + 8 * i;
        float row_max = -INFINITY;
#pragma unroll
        for (int j = 0; j < OWN / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int key = first + 8 * j + 2 * t + c;
                float &x = s[j][2 * i + c];
                if (edge && (key >= a.time || (a.causal && key > query)))
                    x = -INFINITY;
                row_max = fmaxf(row_max, x);
            }
        row_max = fmaxf(r.max[i], over_quad(row_max, true) * scale);
        const float factor = exp2f(r.max[i] - row_max);
        r.max[i] = row_max;
        r.sum[i] *= factor;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            r.out[j][2 * i] *= factor;
            r.out[j][2 * i + 1] *= factor;
        }
#pragma unroll
        for (int j = 0; j < OWN / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &x = s[j][2 * i + c];
                x = exp2f(x * scale - row_max);
                r.sum[i] += x;
            }
    }
    if (a.mask.threshold) {
        const tile_mask<OWN, false> mask(a, b, h, first_query + warp_row(), first);
#pragma unroll
        for (int j = 0; j < OWN / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[j][i] *= mask.keeps(j, i / 2, i % 2) ? a.mask.kept : 0.0f;
    }
}

template <class E, int D> struct forward_tiles {
    alignas(16) E q[OWN * D];
    E k[OWN * D], v[OWN * D];
};

template <class E, int D>
__global__ void __launch_bounds__(BLOCK, 1) attention_forward(E *out, float *lse, const E *qkv, struct attention a) {
    auto &tile = shared<forward_tiles<E, D>>();
    const int b = (int)blockIdx.x / a.heads, h = (int)blockIdx.x % a.heads, shared_by = a.heads / a.kv_heads;
    const int first_query = (int)(gridDim.y - 1 - blockIdx.y) * OWN; /* the longest rows first */
    const int end = a.causal && first_query + OWN < a.time ? first_query + OWN : a.time;
    const E *keys = qkv + key_at(a, b, h / shared_by), *values = qkv + value_at(a, b, h / shared_by);
    softmax_state<D> r = {};
    r.max[0] = r.max[1] = -INFINITY;
    load_tile<D, OWN>(tile.q, qkv + query_at(a, b, h), a.stride, first_query, a);
    load_tile<D, OWN>(tile.k, keys, a.stride, 0, a);
    copy_commit();
    for (int first = 0; first < end; first += OWN) {
        float s[OWN / 8][4];
        copy_wait<0>();
        __syncthreads();
        load_tile<D, OWN>(tile.v, values, a.stride, first, a);
        copy_commit();
        dot_rows<D, OWN>(s, tile.q, warp_row(), tile.k);
        online_softmax<D>(r, s, first_query, first, b, h, a);
        copy_wait<0>();
        __syncthreads();
        /* No warp reads tile.k any more, so the next keys can be loaded while this tile's values are added. */
        if (first + OWN < end)
            load_tile<D, OWN>(tile.k, keys, a.stride, first + OWN, a);
        copy_commit();
        add_rows<D, OWN>(r.out, s, tile.v);
    }
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float sum = over_quad(r.sum[i], false);
        const int query = first_query + warp_row() + lane() / 4 + 8 * i;
        factor[i] = 1.0f / sum;
        if (lane() % 4 == 0 && query < a.time)
            lse[row_at(a, b, h) + query] = r.max[i] * LN_2 + logf(sum);
    }
    store_rows<D>(out + out_at(a, b, h), a.out_stride, first_query, r.out, factor, tile.q, a);
}

/* --- backward ---*/

/* The position of a tile of scores: 16 rows from `row` on and N columns from `column` on. Rows are queries or keys. */
template <int N, bool KEYS_DOWN> struct scores {
    int b, h, row, column;

    __device__ __forceinline__ int query(int j, int i) const {
        return KEYS_DOWN ? column + 8 * j + lane() % 4 * 2 + i % 2 : row + lane() / 4 + i / 2 * 8;
    }
    __device__ __forceinline__ int key(int j, int i) const {
        return KEYS_DOWN ? row + lane() / 4 + i / 2 * 8 : column + 8 * j + lane() % 4 * 2 + i % 2;
    }
    /* Whether the tile contains a pair of query and key that does not exist or that the causal mask hides. */
    __device__ __forceinline__ bool at_edge(const struct attention &a) const {
        const int first_query = KEYS_DOWN ? column : row, last_query = first_query + (KEYS_DOWN ? N : WARP_ROWS) - 1,
                  last_key = KEYS_DOWN ? row + WARP_ROWS - 1 : column + N - 1;
        return last_query >= a.time || last_key >= a.time || (a.causal && last_key > first_query);
    }
};

/* Turns scores into probabilities, with a negative sign if dropout removes them: backward needs both the probability
 * and whether it was kept. lse points to position 0. */
template <int N, bool KEYS_DOWN>
__device__ __forceinline__ void probabilities(float (&s)[N / 8][4], const scores<N, KEYS_DOWN> &at, const float *lse,
                                              const struct attention &a) {
    const bool edge = at.at_edge(a);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int query = at.query(j, i);
            const float of_query = query < a.time ? lse[query] * LOG2_E : 0;
            const float p = exp2f(s[j][i] * (a.scale * LOG2_E) - of_query);
            s[j][i] = edge && !sees(a, query, at.key(j, i)) ? 0.0f : p;
        }
    if (a.mask.threshold == 0)
        return;
    const tile_mask<N, KEYS_DOWN> mask(a, at.b, at.h, at.row, at.column);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[j][i] = mask.keeps(j, i / 2, i % 2) ? s[j][i] : -s[j][i];
}

/* Turns dp into ds = p (kept dp - total), with p and its signs as probabilities() leaves them. */
template <int N, bool KEYS_DOWN>
__device__ __forceinline__ void score_gradients(float (&dp)[N / 8][4], const float (&p)[N / 8][4],
                                                const scores<N, KEYS_DOWN> &at, const float *total,
                                                const struct attention &a) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int query = at.query(j, i);
            const float of_query = query < a.time ? total[query] : 0, factor = p[j][i] < 0 ? 0.0f : a.mask.kept;
            dp[j][i] = fabsf(p[j][i]) * (dp[j][i] * factor - of_query);
        }
}

/* Shared memory: the block's own 64 positions of two tensors, and STAGES times N positions of the other side's two.
 * KEYS_DOWN gives the two kernels different types, because shared() selects memory by its type. */
template <class E, int D, int N, bool KEYS_DOWN> struct backward_tiles {
    alignas(16) E own[2][OWN * D];
    E other[STAGES<D>][2][N * D];
};

template <int D, int N, class E>
__device__ __forceinline__ void load_other(E (&to)[2][N * D], const E *x, int64_t x_stride, const E *y,
                                           int64_t y_stride, int first, const struct attention &a) {
    load_tile<D, N>(to[0], x, x_stride, first, a);
    load_tile<D, N>(to[1], y, y_stride, first, a);
    copy_commit();
}

/* dq = ds k for 64 queries of a head, over their keys; ds = scale p (kept dout v^T - total). */
template <class E, int D>
__global__ void __launch_bounds__(BLOCK, 1)
    attention_backward_queries(E *dqkv, const E *dout, const E *qkv, const float *lse, const float *total,
                               struct attention a) {
    constexpr int N = KEYS<D>;
    auto &tile = shared<backward_tiles<E, D, N, false>>();
    E *const q = tile.own[0], *const dy = tile.own[1];
    const int b = (int)blockIdx.x / a.heads, h = (int)blockIdx.x % a.heads, shared_by = a.heads / a.kv_heads;
    const int first_query = (int)(gridDim.y - 1 - blockIdx.y) * OWN;
    const int end = a.causal && first_query + OWN < a.time ? first_query + OWN : a.time;
    const E *keys = qkv + key_at(a, b, h / shared_by), *values = qkv + value_at(a, b, h / shared_by);
    const float factor[2] = { a.scale, a.scale };
    float dq[D / 8][4] = {};
    load_tile<D, OWN>(q, qkv + query_at(a, b, h), a.stride, first_query, a);
    load_tile<D, OWN>(dy, dout + out_at(a, b, h), a.out_stride, first_query, a);
    load_other<D, N>(tile.other[0], keys, a.stride, values, a.stride, 0, a);
    for (int first = 0, stage = 0; first < end; first += N) {
        const scores<N, false> at = { b, h, first_query + warp_row(), first };
        float p[N / 8][4], ds[N / 8][4];
        if (STAGES<D> == 2 && first + N < end)
            load_other<D, N>(tile.other[stage ^ 1], keys, a.stride, values, a.stride, first + N, a);
        else
            copy_commit();
        copy_wait<1>();
        __syncthreads();
        dot_rows<D, N>(p, q, warp_row(), tile.other[stage][0]);
        probabilities(p, at, lse + row_at(a, b, h), a);
        dot_rows<D, N>(ds, dy, warp_row(), tile.other[stage][1]);
        score_gradients(ds, p, at, total + row_at(a, b, h), a);
        add_rows<D, N>(dq, ds, tile.other[stage][0]);
        __syncthreads();
        if (STAGES<D> == 2)
            stage ^= 1;
        else if (first + N < end)
            load_other<D, N>(tile.other[0], keys, a.stride, values, a.stride, first + N, a);
    }
    store_rows<D>(dqkv + query_at(a, b, h), a.stride, first_query, dq, factor, q, a);
}

/* dv = (kept p)^T dout and dk = ds^T q for 64 keys of a key head, over the query heads that share it and their queries
 * in order. */
template <class E, int D>
__global__ void __launch_bounds__(BLOCK, 1)
    attention_backward_keys(E *dqkv, const E *dout, const E *qkv, const float *lse, const float *total,
                            struct attention a) {
    constexpr int N = QUERIES;
    auto &tile = shared<backward_tiles<E, D, N, true>>();
    E *const k = tile.own[0], *const v = tile.own[1];
    const int b = (int)blockIdx.x / a.kv_heads, g = (int)blockIdx.x % a.kv_heads, shared_by = a.heads / a.kv_heads;
    const int first_key = (int)blockIdx.y * OWN, begin = a.causal ? first_key : 0;
    const int end_h = (g + 1) * shared_by;
    const float factor_k[2] = { a.scale, a.scale }, factor_v[2] = { 1, 1 };
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    load_tile<D, OWN>(k, qkv + key_at(a, b, g), a.stride, first_key, a);
    load_tile<D, OWN>(v, qkv + value_at(a, b, g), a.stride, first_key, a);
    load_other<D, N>(tile.other[0], qkv + query_at(a, b, g * shared_by), a.stride, dout + out_at(a, b, g * shared_by),
                     a.out_stride, begin, a);
    for (int h = g * shared_by, first = begin, stage = 0; h < end_h;) {
        const bool last = first + N >= a.time; /* this is the last tile of head h */
        const int next_h = last ? h + 1 : h, next_first = last ? begin : first + N;
        const bool more = next_h < end_h;
        const scores<N, true> at = { b, h, first_key + warp_row(), first };
        float p[N / 8][4], weight[N / 8][4];
        if (STAGES<D> == 2 && more)
            load_other<D, N>(tile.other[stage ^ 1], qkv + query_at(a, b, next_h), a.stride, dout + out_at(a, b, next_h),
                             a.out_stride, next_first, a);
        else
            copy_commit();
        copy_wait<1>();
        __syncthreads();
        dot_rows<D, N>(p, k, warp_row(), tile.other[stage][0]);
        probabilities(p, at, lse + row_at(a, b, h), a);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                weight[j][c] = fmaxf(p[j][c], 0.0f) * a.mask.kept;
        add_rows<D, N>(dv, weight, tile.other[stage][1]);
        dot_rows<D, N>(weight, v, warp_row(), tile.other[stage][1]);
        score_gradients(weight, p, at, total + row_at(a, b, h), a);
        add_rows<D, N>(dk, weight, tile.other[stage][0]);
        __syncthreads();
        if (STAGES<D> == 2)
            stage ^= 1;
        else if (more)
            load_other<D, N>(tile.other[0], qkv + query_at(a, b, next_h), a.stride, dout + out_at(a, b, next_h),
                             a.out_stride, next_first, a);
        h = next_h;
        first = next_first;
    }
    store_rows<D>(dqkv + key_at(a, b, g), a.stride, first_key, dk, factor_k, k, a);
    store_rows<D>(dqkv + value_at(a, b, g), a.stride, first_key, dv, factor_v, v, a);
}

/* --- launches ---*/

static dim3 grid(const struct attention_dims *d, int64_t heads) {
    return dim3((unsigned)(d->batch * heads), (unsigned)((d->time + OWN - 1) / OWN));
}

template <class E, int D>
static status_t forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                        const struct attention_dims *d, const struct dropout *dropout, struct err *e) {
    return launch(k, e, attention_forward<E, D>, grid(d, d->heads), dim3(BLOCK), (E *)out, lse, (const E *)qkv,
                  attention_of(d, dropout));
}

template <class E, int D>
static status_t backward(const struct kernels *k, const struct attention_gradient *g, const struct attention_dims *d,
                         const struct dropout *dropout, struct err *e) {
    const struct attention a = attention_of(d, dropout);
    TRY(launch(k, e, attention_backward_queries<E, D>, grid(d, d->heads), dim3(BLOCK), (E *)g->dqkv, (const E *)g->dout,
               (const E *)g->qkv, g->lse, (const float *)g->total, a));
    return launch(k, e, attention_backward_keys<E, D>, grid(d, d->kv_heads), dim3(BLOCK), (E *)g->dqkv,
                  (const E *)g->dout, (const E *)g->qkv, g->lse, (const float *)g->total, a);
}

status_t attention_mma_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                               const struct attention_dims *d, const struct dropout *dropout, struct err *e) {
    const bool narrow = d->head <= 64;
    if (k->precision == KERNELS_BF16)
        return narrow ? forward<bf16, 64>(k, out, lse, qkv, d, dropout, e)
                      : forward<bf16, 128>(k, out, lse, qkv, d, dropout, e);
    return narrow ? forward<fp16, 64>(k, out, lse, qkv, d, dropout, e)
                  : forward<fp16, 128>(k, out, lse, qkv, d, dropout, e);
}

status_t attention_mma_backward(const struct kernels *k, const struct attention_gradient *g,
                                const struct attention_dims *d, const struct dropout *dropout, struct err *e) {
    const bool narrow = d->head <= 64;
    TRY(attention_totals(k, g, d, e));
    if (k->precision == KERNELS_BF16)
        return narrow ? backward<bf16, 64>(k, g, d, dropout, e) : backward<bf16, 128>(k, g, d, dropout, e);
    return narrow ? backward<fp16, 64>(k, g, d, dropout, e) : backward<fp16, 128>(k, g, d, dropout, e);
}
