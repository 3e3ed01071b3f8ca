#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/mask.h"
#include "kernels/cpu/plain/ops.h"

#include <math.h>
#include <omp.h>

/* One head of one sample, as strided views of the packed tensors: row t of q, k and v is `stride` after row t - 1. */
struct head {
    const float *q, *k, *v;
    int64_t stride, width, out_stride, time;
    float scale;
    int64_t sample, first_element; /* dropout's coordinates of score (0, 0) */
};

static struct head head_of(const float *qkv, const struct attention_dims *d, int64_t b, int64_t h) {
    const int64_t width = d->width / d->heads;
    const float *q = qkv + b * d->time * 3 * d->width + h * width;
    return (struct head){ .q = q,
                          .k = q + d->width,
                          .v = q + 2 * d->width,
                          .stride = 3 * d->width,
                          .width = width,
                          .out_stride = d->width,
                          .time = d->time,
                          .scale = 1.0f / sqrtf((float)width),
                          .sample = b,
                          .first_element = h * d->time * d->time };
}

static float dot(const float *a, const float *b, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float mask_at(const struct head *a, const struct mask *m, const struct dropout *d, int64_t t, int64_t s) {
    return mask_factor(m, d->first_sample + a->sample, a->first_element + t * a->time + s);
}

static void forward_row(const struct head *a, const struct dropout *d, int64_t t, float *p, float *out, float *lse) {
    const struct mask mask = mask_of(d);
    float most = -INFINITY;
    double sum = 0;
    for (int64_t s = 0; s <= t; s++) {
        p[s] = a->scale * dot(a->q + t * a->stride, a->k + s * a->stride, a->width);
        most = p[s] > most ? p[s] : most;
    }
    for (int64_t s = 0; s <= t; s++)
        sum += p[s] = expf(p[s] - most);
    *lse = most + logf((float)sum);
    for (int64_t c = 0; c < a->width; c++)
        out[c] = 0;
    for (int64_t s = 0; s <= t; s++) {
        const float weight = p[s] / (float)sum * mask_at(a, &mask, d, t, s);
        for (int64_t c = 0; c < a->width; c++)
            out[c] += weight * a->v[s * a->stride + c];
    }
}

status_t plain_attention_forward(const struct kernels *k, float *out, float *lse, const float *qkv,
                                 const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                 struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < d->batch * d->heads; i++) {
        struct head a = head_of(qkv, d, i / d->heads, i % d->heads);
        float *p = (float *)((char *)workspace + (size_t)omp_get_thread_num() * attention_tile_bytes(d));
        float *o = out + (i / d->heads * d->time) * d->width + i % d->heads * a.width;
        for (int64_t t = 0; t < d->time; t++)
            forward_row(&a, dropout, t, p, o + t * d->width, lse + i * d->time + t);
    }
    return ST_OK;
}

/* Row t adds to dk and dv of the positions before it. With P the probabilities and D = dout . out:
 * dV += P^T dout;  dS = P (dout V^T - D);  dq = dS k;  dk += dS^T q. */
static void backward_row(const struct head *a, const struct dropout *d, int64_t t, const float *dout, const float *out,
                         float lse, float *dqkv) {
    const struct mask mask = mask_of(d);
    const int64_t width = a->width, c3 = a->out_stride;
    const float *q = a->q + t * a->stride, total = dot(dout, out, width);
    float *dq = dqkv + t * a->stride;
    for (int64_t c = 0; c < width; c++)
        dq[c] = 0;
    for (int64_t s = 0; s <= t; s++) {
        const float *key = a->k + s * a->stride, *value = a->v + s * a->stride;
        float *dk = dqkv + s * a->stride + c3, *dv = dk + c3;
        const float p = expf(a->scale * dot(q, key, width) - lse), kept = mask_at(a, &mask, d, t, s);
        const float ds = a->scale * p * (kept * dot(dout, value, width) - total);
        for (int64_t c = 0; c < width; c++) {
            dv[c] += p * kept * dout[c];
            dq[c] += ds * key[c];
            dk[c] += ds * q[c];
        }
    }
}

status_t plain_attention_backward(const struct kernels *k, float *dqkv, const float *dout, const float *qkv,
                                  const float *out, const float *lse, const struct attention_dims *d,
                                  const struct dropout *dropout, void *workspace, struct err *e) {
    (void)workspace;
    TRY(k->fill(k, dqkv, 0, d->batch * d->time * 3 * d->width, e));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < d->batch * d->heads; i++) {
        struct head a = head_of(qkv, d, i / d->heads, i % d->heads);
        const int64_t at = (i / d->heads * d->time) * d->width + i % d->heads * a.width;
        for (int64_t t = 0; t < d->time; t++)
            backward_row(&a, dropout, t, dout + at + t * d->width, out + at + t * d->width, lse[i * d->time + t],
                         dqkv + (a.q - qkv));
    }
    return ST_OK;
}
