/* Attention with one warp per row, for every shape that attention_mma.cu does not compute: any precision, any head,
 * all arithmetic in fp32. It is also the readable version of the algorithm.
 *
 * The lanes of a warp share the numbers of one row. The warp visits the positions of the other side one by one:
 * forward keeps a running maximum and a running sum of exponentials; backward computes probabilities again from lse.
 * One kernel owns a query and sums dq over the keys, another owns a key and sums dk and dv over the queries, so that
 * no sum needs atomic additions. */
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_view.cuh"

#include <type_traits>

static constexpr int WARPS = 4;

/* The numbers of a row that one lane has, out of `head`: lane, lane + 32 and so on. */
template <int PER, class E> __device__ __forceinline__ void load(float (&to)[PER], const E *from, int head) {
#pragma unroll
    for (int i = 0; i < PER; i++)
        to[i] = lane() + 32 * i < head ? float_of(from[lane() + 32 * i]) : 0.0f;
}

template <int PER, class E>
__device__ __forceinline__ void store(E *to, const float (&from)[PER], float factor, int head) {
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (lane() + 32 * i < head)
            to[lane() + 32 * i] = element_of<E>(from[i] * factor);
}

template <int PER> __device__ __forceinline__ float dot(const float (&a)[PER], const float (&b)[PER]) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        sum += a[i] * b[i];
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, other);
    return sum;
}

template <int PER> __device__ __forceinline__ void add(float (&sum)[PER], float weight, const float (&x)[PER]) {
#pragma unroll
    for (int i = 0; i < PER; i++)
        sum[i] += weight * x[i];
}

/* The row that a warp owns: position t of head h of sample b, of `heads` heads. */
struct row {
    int b, h, t;
};
__device__ __forceinline__ row row_of_warp() {
    return row{ (int)blockIdx.z, (int)blockIdx.y, (int)(blockIdx.x * WARPS + threadIdx.x / 32) };
}
__device__ __forceinline__ int seen(const struct attention &a, int t) { return a.causal ? t + 1 : a.time; }

template <class E, int PER>
__global__ void __launch_bounds__(32 * WARPS, 1) plain_forward(E *out, float *lse, const E *qkv, struct attention a) {
    const row q = row_of_warp();
    if (q.t >= a.time)
        return;
    const int shared = q.h / (a.heads / a.kv_heads);
    const E *keys = qkv + key_at(a, q.b, shared), *values = qkv + value_at(a, q.b, shared);
    float x[PER], key[PER], value[PER], y[PER] = {}, row_max = -INFINITY, sum = 0;
    load(x, qkv + query_at(a, q.b, q.h) + q.t * a.stride, a.head);
#pragma unroll 1
    for (int s = 0; s < seen(a, q.t); s++) {
        load(key, keys + s * a.stride, a.head);
        load(value, values + s * a.stride, a.head);
        const float score = a.scale * dot(x, key), before = row_max;
        row_max = fmaxf(row_max, score);
        const float factor = expf(before - row_max), p = expf(score - row_max);
        sum = sum * factor + p;
#pragma unroll
        for (int i = 0; i < PER; i++)
            y[i] *= factor;
        add(y, p * kept(a, q.b, q.h, q.t, s), value);
    }
    store(out + out_at(a, q.b, q.h) + q.t * a.out_stride, y, 1.0f / sum, a.head);
    if (lane() == 0)
        lse[row_at(a, q.b, q.h) + q.t] = row_max + logf(sum);
}

template <class E, int PER>
__global__ void __launch_bounds__(32 * WARPS, 1)
    plain_totals(float *total, const E *dout, const E *out, struct attention a) {
    const row q = row_of_warp();
    if (q.t >= a.time)
        return;
    const int64_t at = out_at(a, q.b, q.h) + q.t * a.out_stride;
    float dy[PER], y[PER];
    load(dy, dout + at, a.head);
    load(y, out + at, a.head);
    const float sum = dot(dy, y);
    if (lane() == 0)
        total[row_at(a, q.b, q.h) + q.t] = sum;
}

template <class E, int PER>
__global__ void __launch_bounds__(32 * WARPS, 1)
    plain_backward_queries(E *dqkv, const E *dout, const E *qkv, const float *lse, const float *total,
                           struct attention a) {
    const row q = row_of_warp();
    if (q.t >= a.time)
        return;
    const int shared = q.h / (a.heads / a.kv_heads);
    const E *keys = qkv + key_at(a, q.b, shared), *values = qkv + value_at(a, q.b, shared);
    const float row_lse = lse[row_at(a, q.b, q.h) + q.t], row_total = total[row_at(a, q.b, q.h) + q.t];
    float x[PER], dy[PER], key[PER], value[PER], dx[PER] = {};
    load(x, qkv + query_at(a, q.b, q.h) + q.t * a.stride, a.head);
    load(dy, dout + out_at(a, q.b, q.h) + q.t * a.out_stride, a.head);
#pragma unroll 1
    for (int s = 0; s < seen(a, q.t); s++) {
        load(key, keys + s * a.stride, a.head);
        load(value, values + s * a.stride, a.head);
        const float p = expf(a.scale * dot(x, key) - row_lse), dp = dot(dy, value);
        add(dx, p * (dp * kept(a, q.b, q.h, q.t, s) - row_total), key);
    }
    store(dqkv + query_at(a, q.b, q.h) + q.t * a.stride, dx, a.scale, a.head);
}

template <class E, int PER>
__global__ void __launch_bounds__(32 * WARPS, 1)
    plain_backward_keys(E *dqkv, const E *dout, const E *qkv, const float *lse, const float *total,
                        struct attention a) {
    const row own = row_of_warp();
    const int b = own.b, g = own.h, s = own.t, shared_by = a.heads / a.kv_heads;
    if (s >= a.time)
        return;
    float x[PER], dy[PER], key[PER], value[PER], dk[PER] = {}, dv[PER] = {};
    load(key, qkv + key_at(a, b, g) + s * a.stride, a.head);
    load(value, qkv + value_at(a, b, g) + s * a.stride, a.head);
    for (int h = g * shared_by; h < (g + 1) * shared_by; h++)
        for (int t = a.causal ? s : 0; t < a.time; t++) {
            const int64_t at = row_at(a, b, h) + t;
            load(x, qkv + query_at(a, b, h) + t * a.stride, a.head);
            load(dy, dout + out_at(a, b, h) + t * a.out_stride, a.head);
            const float p = expf(a.scale * dot(x, key) - lse[at]), factor = kept(a, b, h, t, s), dp = dot(dy, value);
            add(dv, p * factor, dy);
            add(dk, p * (dp * factor - total[at]), x);
        }
    store(dqkv + key_at(a, b, g) + s * a.stride, dk, a.scale, a.head);
    store(dqkv + value_at(a, b, g) + s * a.stride, dv, 1.0f, a.head);
}

/* --- launches ---*/

/* Positions are on the grid's x axis, because the other axes end at 65,535. */
static dim3 grid(const struct attention_dims *d, int64_t heads) {
    return dim3((unsigned)((d->time + WARPS - 1) / WARPS), (unsigned)heads, (unsigned)d->batch);
}

/* Calls f with a number of the table's precision, and with whether heads are of up to 64 numbers. */
template <class F> static status_t by_width(const struct kernels *k, const struct attention_dims *d, F f) {
    return by_precision(k, [&](auto zero) {
        return d->head <= 64 ? f(zero, std::integral_constant<int, 2>())
                             : f(zero, std::integral_constant<int, ATTENTION_PLAIN_MAX_HEAD / 32>());
    });
}

status_t attention_plain_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                 const struct attention_dims *d, const struct dropout *dropout, struct err *e) {
    const struct attention a = attention_of(d, dropout);
    return by_width(k, d, [&](auto zero, auto per) {
        typedef decltype(zero) E;
        return launch(k, e, plain_forward<E, decltype(per)::value>, grid(d, d->heads), dim3(32 * WARPS), (E *)out, lse,
                      (const E *)qkv, a);
    });
}

status_t attention_totals(const struct kernels *k, const struct attention_gradient *g, const struct attention_dims *d,
                          struct err *e) {
    struct dropout none = {};
    const struct attention a = attention_of(d, &none);
    return by_width(k, d, [&](auto zero, auto per) {
        typedef decltype(zero) E;
        return launch(k, e, plain_totals<E, decltype(per)::value>, grid(d, d->heads), dim3(32 * WARPS), g->total,
                      (const E *)g->dout, (const E *)g->out, a);
    });
}

status_t attention_plain_backward(const struct kernels *k, const struct attention_gradient *g,
                                  const struct attention_dims *d, const struct dropout *dropout, struct err *e) {
    const struct attention a = attention_of(d, dropout);
    TRY(attention_totals(k, g, d, e));
    return by_width(k, d, [&](auto zero, auto per) {
        typedef decltype(zero) E;
        constexpr int PER = decltype(per)::value;
        TRY(launch(k, e, plain_backward_queries<E, PER>, grid(d, d->heads), dim3(32 * WARPS), (E *)g->dqkv,
                   (const E *)g->dout, (const E *)g->qkv, g->lse, (const float *)g->total, a));
        return launch(k, e, plain_backward_keys<E, PER>, grid(d, d->kv_heads), dim3(32 * WARPS), (E *)g->dqkv,
                      (const E *)g->dout, (const E *)g->qkv, g->lse, (const float *)g->total, a);
    });
}
