/* Attention by cuDNN's flash attention, as graphs of its backend API. Without dropout, whose masks kernels.h
 * defines. Conventions and errors are those of attention_* in kernels.h; UNIMPLEMENTED if cuDNN has no engine for
 * the shape. All pointers are on 16-byte boundaries. */
#ifndef KERNELS_CUDA_ATTENTION_CUDNN_H
#define KERNELS_CUDA_ATTENTION_CUDNN_H

#include "kernels/cuda/lib/cudnn.h"
#include "kernels/kernels.h"

#include <stdbool.h>

/* How dQ is summed: in a fixed order over the keys, for which cuDNN keeps the gradients of the scores (workspace of
 * batch heads time^2 numbers), or by atomic additions in any order. */
struct attention_cudnn {
    struct attention_dims dims;
    enum kernels_precision precision;
    bool fast; /* atomic additions */
};

/* ST_OK if cuDNN has engines for both directions that fit in cuda_attention_workspace. The first call with a shape
 * makes the plans. */
MUST_CHECK status_t attention_cudnn_find(struct cudnn *c, const struct attention_cudnn *a, struct err *e);
MUST_CHECK status_t attention_cudnn_forward(struct cudnn *c, const struct attention_cudnn *a, element_t *out,
                                            float *lse, const element_t *qkv, void *workspace, struct err *e);
MUST_CHECK status_t attention_cudnn_backward(struct cudnn *c, const struct attention_cudnn *a, element_t *dqkv,
                                             const element_t *dout, const element_t *qkv, const element_t *out,
                                             const float *lse, void *workspace, struct err *e);

#endif
