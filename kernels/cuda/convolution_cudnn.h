/* Convolutions by cuDNN, channels last throughout: weights are (out, kernel, kernel, in) here, which the caller packs.
 * Otherwise as kernels.h's convolution_*; UNIMPLEMENTED where cuDNN has no engine that computes the same bits every
 * time, or, where engines are timed (cudnn_choose_by_time), none at all. The gradient of weights is summed in fp32 and
 * comes as elements: cuDNN gives no wider ones for them. */
#ifndef KERNELS_CUDA_CONVOLUTION_CUDNN_H
#define KERNELS_CUDA_CONVOLUTION_CUDNN_H

#include "kernels/cuda/cudnn.h"
#include "kernels/kernels.h"

enum convolution_pass { CONVOLUTION_FORWARD, CONVOLUTION_BACKWARD_INPUT, CONVOLUTION_BACKWARD_WEIGHT };
enum { CONVOLUTION_PASSES = 3 };

/* ST_OK where cuDNN has an engine that fits into cuda_convolution_workspace. The first call with a shape makes the
 * plan. */
MUST_CHECK status_t convolution_cudnn_find(struct cudnn *c, enum convolution_pass pass,
                                           enum kernels_precision precision, const struct convolution_dims *d,
                                           struct err *e);
/* The first call with a shape times its engines, if any are. FORWARD: y of x and w; BACKWARD_INPUT: x of y and w;
 * BACKWARD_WEIGHT: w of x and y. */
MUST_CHECK status_t convolution_cudnn_run(struct cudnn *c, enum convolution_pass pass, enum kernels_precision precision,
                                          const struct convolution_dims *d, void *x, void *w, void *y, void *workspace,
                                          struct err *e);

#endif
