/* Attention by this project's own kernels, for shapes that cuDNN does not compute. attention_mma.cu uses the matrix
 * units, for 2-byte elements and heads of up to 128 numbers, a multiple of 8. attention_plain.cu computes all other
 * shapes, up to 256 numbers per head.
 *
 * Conventions are those of attention_* in kernels.h. `total` (B, heads, T) is workspace: the row sums of dout out.
 * The grid never divides a sum: a block owns its queries, and in the second part of backward a block owns its keys. */
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

enum { ATTENTION_MMA_MAX_HEAD = 128, ATTENTION_PLAIN_MAX_HEAD = 256 };

MUST_CHECK status_t attention_plain_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                            const struct attention_dims *d, const struct dropout *dropout,
                                            struct err *e);
MUST_CHECK status_t attention_plain_backward(const struct kernels *k, const struct attention_gradient *g,
                                             const struct attention_dims *d, const struct dropout *dropout,
                                             struct err *e);

/* Fills g->total. Both backward implementations begin with this step. */
MUST_CHECK status_t attention_totals(const struct kernels *k, const struct attention_gradient *g,
                                     const struct attention_dims *d, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
