#include "kernels/cpu/rope.h"

#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/rows.h"

static void turn_head(element *to, const element *from, int64_t half, const float *cosine, const float *sine,
                      float sign) {
    for (int64_t i = 0; i < half; i += LANES) {
        const int64_t lanes = lanes_at(i, half);
        const vf a = ve_load_first(from + i, lanes), b = ve_load_first(from + half + i, lanes);
        const vf c = vf_load_first(cosine + i, lanes), s = vf_mul(vf_load_first(sine + i, lanes), vf_set(sign));
        ve_store_first(to + i, vf_fnma(b, s, vf_mul(a, c)), lanes);
        ve_store_first(to + half + i, vf_fma(a, s, vf_mul(b, c)), lanes);
    }
}

status_t VECTOR(rope)(const struct kernels *k, element_t *to, const element_t *from, const struct attention_dims *d,
                      const struct rope *r, bool inverse, struct err *e) {
    const int64_t heads = d->heads + 2 * d->kv_heads, turned = d->heads + d->kv_heads, half = d->head / 2;
    const float *cosine, *sine;
    TRY(rope_angles(k, r, d->time, d->head, &cosine, &sine, e));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < d->batch * d->time; row++) {
        const int64_t angles = row % d->time * half, values = (row * heads + turned) * d->head;
        for (int64_t h = 0; h < turned; h++) {
            const int64_t at = (row * heads + h) * d->head;
            turn_head(AT(to, at), AT(from, at), half, cosine + angles, sine + angles, inverse ? -1 : 1);
        }
        if (to != from)
            memcpy(AT(to, values), AT(from, values), (size_t)(d->kv_heads * d->head) * sizeof(element));
    }
    return ST_OK;
}
