/* Convolutions by cuDNN, with channels last in all tensors: weights are (out, kernel, kernel, in), and the caller
 * packs them. Otherwise like convolution_* in kernels.h. UNIMPLEMENTED if cuDNN has no engine that always computes
 * the same bits or, if engines are timed (cudnn_is_timed), no engine at all. The gradient of weights is summed in
 * fp32 and returned as elements, because cuDNN has no wider result for it. */
#ifndef KERNELS_CUDA_CONVOLUTION_CUDNN_H
#define KERNELS_CUDA_CONVOLUTION_CUDNN_H

#include "kernels/cuda/lib/cudnn.h"
#include "kernels/kernels.h"

enum convolution_pass { CONVOLUTION_FORWARD, CONVOLUTION_BACKWARD_INPUT, CONVOLUTION_BACKWARD_WEIGHT };
enum { CONVOLUTION_PASSES = 3 };

/* ST_OK if cuDNN has an engine that fits in cuda_convolution_workspace. The first call with a shape makes the plan. */
MUST_CHECK status_t convolution_cudnn_find(struct cudnn *c, enum convolution_pass pass,
                                           enum kernels_precision precision, const struct convolution_dims *d,
                                           struct err *e);
/* Under `fast`, the first call with a shape times its engines. FORWARD: y from x and w; BACKWARD_INPUT: x from y and
 * w; BACKWARD_WEIGHT: w from x and y. */
MUST_CHECK status_t convolution_cudnn_run(struct cudnn *c, enum convolution_pass pass, enum kernels_precision precision,
                                          const struct convolution_dims *d, void *x, void *w, void *y, void *workspace,
                                          struct err *e);

#endif
