/* The positions of heads in the packed tensors of attention. See struct attention_dims. */
#ifndef KERNELS_CPU_VECTOR_ATTENTION_PLACE_H
#define KERNELS_CPU_VECTOR_ATTENTION_PLACE_H

#include "kernels/cpu/vector/elements.h"

/* The position of one key head and its query heads in the tensors. */
struct place {
    int64_t b, shared, group; /* query heads shared * group .. + group - 1 */
    int64_t stride, out_stride;
};

static inline struct place place_of(const struct attention_dims *d, int64_t i) {
    return (struct place){ .b = i / d->kv_heads,
                           .shared = i % d->kv_heads,
                           .group = d->heads / d->kv_heads,
                           .stride = (d->heads + 2 * d->kv_heads) * d->head,
                           .out_stride = d->heads * d->head };
}

/* The first element of head h of the packed tensor, counted over queries, keys and values. */
static inline int64_t packed_at(const struct attention_dims *d, const struct place *p, int64_t h) {
    return p->b * d->time * p->stride + h * d->head;
}
static inline int64_t key_at(const struct attention_dims *d, const struct place *p) {
    return packed_at(d, p, d->heads + p->shared);
}
static inline int64_t value_at(const struct attention_dims *d, const struct place *p) {
    return packed_at(d, p, d->heads + d->kv_heads + p->shared);
}
static inline int64_t out_at(const struct attention_dims *d, const struct place *p, int64_t h) {
    return p->b * d->time * p->out_stride + h * d->head;
}

/* The scalar product of two rows of elements. */
static inline float dot(const element *x, const element *y, int64_t n) {
    vf sum = vf_set(0);
    for (int64_t c = 0; c < n; c += LANES) {
        const int64_t lanes = lanes_at(c, n);
        sum = vf_fma(ve_load_first(x + c, lanes), ve_load_first(y + c, lanes), sum);
    }
    return vf_sum(sum);
}

#endif
