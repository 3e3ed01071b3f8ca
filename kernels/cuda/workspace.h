/* The workspace of each op on CUDA, in bytes beyond its arguments: a function of shape, precision and `fast` alone.
 * It does not depend on the device or on a library, so that a plan made on any host knows the arena to the byte.
 * cuDNN may use only engines that fit in the given workspace.
 *
 * Plain C without CUDA's headers: part of the plugin and of every program (kernels_shape_only). The file of each op
 * defines the layout of its workspace; tests in tests/kernels/cuda check the bytes behind it. */
#ifndef KERNELS_CUDA_WORKSPACE_H
#define KERNELS_CUDA_WORKSPACE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

KERNEL_OP(cuda_linear_backward_bias_workspace, linear_backward_bias_workspace);
KERNEL_OP(cuda_linear_backward_weight_workspace, linear_backward_weight_workspace);
KERNEL_OP(cuda_embedding_backward_workspace, embedding_backward_workspace);
size_t cuda_norm_workspace(const struct kernels *k, int64_t rows, int64_t width);
KERNEL_OP(cuda_attention_workspace, attention_workspace);
KERNEL_OP(cuda_batchnorm_workspace, batchnorm_workspace);
KERNEL_OP(cuda_convolution_workspace, convolution_workspace);
KERNEL_OP(cuda_fourier_workspace, fourier_workspace);
KERNEL_OP(cuda_adafactor_workspace, adafactor_workspace);

/* --- parts of attention's workspace. The kernels of this folder: the row sums of dout out. cuDNN's graphs: these;
 * the sums of dQ, if it is summed by atomic additions; and the workspace of the engine --- */
size_t cuda_attention_totals_bytes(const struct attention_dims *d);
size_t cuda_attention_sums_bytes(const struct attention_dims *d, bool fast);
/* The maximum workspace of an engine, including its alignment: of forward, and of either direction. 0: cuDNN does
 * not compute the shape. */
enum { CUDA_ATTENTION_FORWARD_ENGINE_BYTES = 4096 };
size_t cuda_attention_engine_bytes(const struct attention_dims *d, enum kernels_precision precision, bool fast);

/* --- parts of a convolution's workspace: packed weights or their gradient; then columns, or cuDNN's dx before it is
 * added to the caller's, and the workspace of cuDNN's engine. A convolution that is a product has none --- */
/* Whether the convolution is a product of the pixels of x, as they are in memory, and the weights. */
bool cuda_convolution_is_product(const struct convolution_dims *d);
int64_t columns_width(const struct convolution_dims *d);   /* numbers of a column */
int64_t columns_pixels(const struct convolution_dims *d);  /* of y */
int64_t columns_samples(const struct convolution_dims *d); /* samples whose columns are computed at a time */
size_t cuda_convolution_weights_bytes(const struct convolution_dims *d);
size_t cuda_convolution_dx_bytes(const struct convolution_dims *d, enum kernels_precision precision);
/* The maximum workspace of an engine: of forward and dw, and of dx. */
size_t cuda_convolution_engine_bytes(const struct convolution_dims *d);
size_t cuda_convolution_dx_engine_bytes(const struct convolution_dims *d, enum kernels_precision precision);

/* The table for kernels_shape_only; NULL if the precision is invalid. */
const struct kernels *cuda_shape_only(enum kernels_precision precision, bool fast);

#ifdef __cplusplus
}
#endif

#endif
