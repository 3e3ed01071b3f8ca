/* Attention's own kernels, where cuDNN has none: attention_mma.cu on the matrix units, for 2-byte elements and heads of
 * up to 128 numbers in eights; attention_plain.cu for all else, up to 256 numbers a head.
 *
 * Conventions as kernels.h's attention_*. `total` (B, heads, T) is workspace: the row sums of dout out. No sum is cut
 * by the grid: a block owns its queries, and in backward others own their keys. */
#ifndef KERNELS_CUDA_ATTENTION_KERNELS_H
#define KERNELS_CUDA_ATTENTION_KERNELS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attention_gradient {
    element_t *dqkv;
    const element_t *dout, *qkv, *out;
    const float *lse;
    float *total;
};

MUST_CHECK status_t attention_mma_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                          const struct attention_dims *d, const struct dropout *dropout, struct err *e);
MUST_CHECK status_t attention_mma_backward(const struct kernels *k, const struct attention_gradient *g,
                                           const struct attention_dims *d, const struct dropout *dropout,
                                           struct err *e);

enum { ATTENTION_MMA_HEAD_MOST = 128, ATTENTION_PLAIN_HEAD_MOST = 256 };

MUST_CHECK status_t attention_plain_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                            const struct attention_dims *d, const struct dropout *dropout,
                                            struct err *e);
MUST_CHECK status_t attention_plain_backward(const struct kernels *k, const struct attention_gradient *g,
                                             const struct attention_dims *d, const struct dropout *dropout,
                                             struct err *e);

/* Fills g->total: the first step of either backward. */
MUST_CHECK status_t attention_totals(const struct kernels *k, const struct attention_gradient *g,
                                     const struct attention_dims *d, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
