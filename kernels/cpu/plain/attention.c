/* Attention, one row of scores at a time: the readable reference.
 *
 * Forward, for each query: the scores of the keys that it sees, their softmax in fp32 with the sum in double, then the
 * weighted sum of the values, with dropout on the weights. lse = log of the sum of exps is stored for backward.
 *
 * Backward, for each query: each probability is computed again from its score and lse. One thread computes all query
 * heads of one key head, because they share dk and dv, in its own fp32 workspace. */
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/mask.h"
#include "kernels/cpu/plain/ops.h"

#include <math.h>
#include <omp.h>

/* One query head of one sample, as strided views of the packed tensors. Rows of q, k and v are `stride` apart. */
struct head {
    const element *q, *k, *v;
    int64_t stride, out_stride, width, time;
    bool causal;
    float scale;
    int64_t sample, first_element; /* position of score (0, 0) for dropout */
};

static struct head head_of(const element_t *qkv, const struct attention_dims *d, int64_t b, int64_t h) {
    const int64_t stride = (d->heads + 2 * d->kv_heads) * d->head, shared = h / (d->heads / d->kv_heads);
    const element *row = AT(qkv, b * d->time * stride);
    return (struct head){ .q = row + h * d->head,
                          .k = row + (d->heads + shared) * d->head,
                          .v = row + (d->heads + d->kv_heads + shared) * d->head,
                          .stride = stride,
                          .out_stride = d->heads * d->head,
                          .width = d->head,
                          .time = d->time,
                          .causal = d->causal,
                          .scale = 1.0f / sqrtf((float)d->head),
                          .sample = b,
                          .first_element = h * d->time * d->time };
}

static float *thread_floats(const struct kernels *k, void *workspace, const struct attention_dims *d) {
    return (float *)((char *)workspace + (size_t)omp_get_thread_num() * attention_tile_bytes(d, k->precision));
}

static float dot(const element *a, const element *b, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += float_of(a[i]) * float_of(b[i]);
    return sum;
}

static int64_t seen(const struct head *a, int64_t t) { return a->causal ? t + 1 : a->time; }

static float mask_at(const struct head *a, const struct mask *m, const struct dropout *d, int64_t t, int64_t s) {
    return mask_factor(m, d->first_sample + a->sample, a->first_element + t * a->time + s);
}

/* p: scratch memory for the probabilities, then for the output in fp32. */
static void forward_row(const struct head *a, const struct dropout *d, int64_t t, float *p, element *out, float *lse) {
    const struct mask mask = mask_of(d);
    float row_max = -INFINITY, *y = p + a->time;
    double sum = 0;
    for (int64_t s = 0; s < seen(a, t); s++) {
        p[s] = a->scale * dot(a->q + t * a->stride, a->k + s * a->stride, a->width);
        row_max = p[s] > row_max ? p[s] : row_max;
    }
    for (int64_t s = 0; s < seen(a, t); s++)
        sum += p[s] = expf(p[s] - row_max);
    *lse = row_max + logf((float)sum);
    for (int64_t c = 0; c < a->width; c++)
        y[c] = 0;
    for (int64_t s = 0; s < seen(a, t); s++) {
        const float weight = p[s] / (float)sum * mask_at(a, &mask, d, t, s);
        for (int64_t c = 0; c < a->width; c++)
            y[c] += weight * float_of(a->v[s * a->stride + c]);
    }
    for (int64_t c = 0; c < a->width; c++)
        out[c] = element_of(y[c]);
}

status_t PLAIN(attention_forward)(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                  const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                  struct err *e) {
    const int64_t group = d->heads / d->kv_heads;
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int64_t i = 0; i < d->batch * d->kv_heads; i++)
        for (int64_t h = i * group; h < (i + 1) * group; h++) {
            const struct head a = head_of(qkv, d, h / d->heads, h % d->heads);
            element *o = AT(out, h / d->heads * d->time * a.out_stride + h % d->heads * a.width);
            float *scratch = thread_floats(k, workspace, d);
            for (int64_t t = 0; t < d->time; t++)
                forward_row(&a, dropout, t, scratch, o + t * a.out_stride, lse + h * d->time + t);
        }
    return ST_OK;
}

/* Row t adds to dk and dv of the positions that it sees. With P the probabilities and D = dout . out:
 * dV += P^T dout;  dS = P (dout V^T - D);  dq = dS k;  dk += dS^T q. */
static void backward_row(const struct head *a, const struct dropout *d, int64_t t, const element *dout,
                         const element *out, float lse, float *dq, float *dk, float *dv) {
    const struct mask mask = mask_of(d);
    const int64_t width = a->width;
    const element *q = a->q + t * a->stride;
    const float total = dot(dout, out, width);
    for (int64_t c = 0; c < width; c++)
        dq[c] = 0;
    for (int64_t s = 0; s < seen(a, t); s++) {
        const element *key = a->k + s * a->stride, *value = a->v + s * a->stride;
        const float p = expf(a->scale * dot(q, key, width) - lse), kept = mask_at(a, &mask, d, t, s);
        const float ds = a->scale * p * (kept * dot(dout, value, width) - total);
        for (int64_t c = 0; c < width; c++) {
            dv[s * width + c] += p * kept * float_of(dout[c]);
            dq[c] += ds * float_of(key[c]);
            dk[s * width + c] += ds * float_of(q[c]);
        }
    }
}

static void store_rows(element *to, int64_t stride, const float *from, int64_t rows, int64_t width) {
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < width; c++)
            to[t * stride + c] = element_of(from[t * width + c]);
}

/* Each thread computes all query heads of one key head, which share its gradients. */
status_t PLAIN(attention_backward)(const struct kernels *k, element_t *dqkv, const element_t *dout,
                                   const element_t *qkv, const element_t *out, const float *lse,
                                   const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                   struct err *e) {
    (void)e;
    const int64_t group = d->heads / d->kv_heads;
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int64_t i = 0; i < d->batch * d->kv_heads; i++) {
        const int64_t b = i / d->kv_heads, first = i % d->kv_heads * group, floats = d->time * d->head;
        float *dk = thread_floats(k, workspace, d), *dv = dk + floats, *dq = dv + floats;
        struct head a = { 0 };
        for (int64_t j = 0; j < 2 * floats; j++)
            dk[j] = 0;
        for (int64_t h = first; h < first + group; h++) {
            a = head_of(qkv, d, b, h);
            for (int64_t t = 0; t < d->time; t++) {
                const int64_t at = (b * d->time + t) * a.out_stride + h * d->head;
                backward_row(&a, dropout, t, AT(dout, at), AT(out, at), lse[(b * d->heads + h) * d->time + t], dq, dk,
                             dv);
                store_rows(AT(dqkv, a.q - AT(qkv, 0)) + t * a.stride, a.stride, dq, 1, d->head);
            }
        }
        store_rows(AT(dqkv, a.k - AT(qkv, 0)), a.stride, dk, d->time, d->head);
        store_rows(AT(dqkv, a.v - AT(qkv, 0)), a.stride, dv, d->time, d->head);
    }
    return ST_OK;
}
