#include "kernels/cpu/rope.h"

#include "kernels/cpu/plain/ops.h"

static void turn_head(element *to, const element *from, int64_t half, const float *cosine, const float *sine,
                      bool inverse) {
    for (int64_t i = 0; i < half; i++) {
        const float a = float_of(from[i]), b = float_of(from[i + half]), s = inverse ? -sine[i] : sine[i];
        to[i] = element_of(a * cosine[i] - b * s);
        to[i + half] = element_of(b * cosine[i] + a * s);
    }
}

status_t PLAIN(rope)(const struct kernels *k, element_t *to, const element_t *from, const struct attention_dims *d,
                     const struct rope *r, bool inverse, struct err *e) {
    const int64_t heads = d->heads + 2 * d->kv_heads, turned = d->heads + d->kv_heads, half = d->head / 2;
    const float *cosine, *sine;
    TRY(rope_angles(k, r, d->time, d->head, &cosine, &sine, e));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < d->batch * d->time; row++) {
        const int64_t angles = row % d->time * half;
        for (int64_t h = 0; h < turned; h++) {
            const int64_t at = (row * heads + h) * d->head;
            turn_head(AT(to, at), AT(from, at), half, cosine + angles, sine + angles, inverse);
        }
        for (int64_t at = (row * heads + turned) * d->head; at < (row + 1) * heads * d->head; at++)
            *AT(to, at) = *AT(from, at);
    }
    return ST_OK;
}
