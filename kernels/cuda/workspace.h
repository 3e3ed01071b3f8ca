/* How much room the ops take beyond their arguments on CUDA: by shape, precision and `fast` alone. No device and no
 * library has a say in it, so that a plan made on any host knows the arena to the byte; cuDNN takes only engines that
 * fit into the room that is there.
 *
 * In plain C, without CUDA's headers: a part of the plugin and of every program (kernels_described). Each function's
 * room is laid out by the file of its op; tests/kernels/cuda watch the bytes behind it. */
#ifndef KERNELS_CUDA_WORKSPACE_H
#define KERNELS_CUDA_WORKSPACE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t cuda_linear_backward_bias_workspace(const struct kernels *k, const struct linear_dims *d);
size_t cuda_linear_backward_weight_workspace(const struct kernels *k, const struct linear_dims *d);
size_t cuda_embedding_backward_workspace(const struct kernels *k, int64_t batch, int64_t time, int64_t width);
size_t cuda_norm_workspace(const struct kernels *k, int64_t rows, int64_t width);
size_t cuda_attention_workspace(const struct kernels *k, const struct attention_dims *d);
size_t cuda_batchnorm_workspace(const struct kernels *k, const struct batchnorm_dims *d);
size_t cuda_convolution_workspace(const struct kernels *k, const struct convolution_dims *d);
size_t cuda_fourier_workspace(const struct kernels *k, const struct fourier_dims *d);
size_t cuda_adafactor_workspace(const struct kernels *k, int64_t rows, int64_t columns);

/* --- the parts of attention's: of the own kernels the row sums of dout out; of cuDNN's graphs these, where dQ is
 * summed by atomic additions its sums, and what the engine asks for ---*/
size_t cuda_attention_totals_bytes(const struct attention_dims *d);
size_t cuda_attention_sums_bytes(const struct attention_dims *d, bool fast);
/* The most that an engine may ask for, its alignment included: of forward's, and of either's; 0: the shape is not for
 * cuDNN. */
enum { CUDA_ATTENTION_FORWARD_ENGINE_BYTES = 4096 };
size_t cuda_attention_engine_bytes(const struct attention_dims *d, enum kernels_precision precision, bool fast);

/* --- the parts of a convolution's: packed weights, or their gradient; then columns, or what cuDNN adds to dx
 * and what its engine asks for. A convolution that is a product has none ---*/
/* Pixels are rows of a product as they stand. */
bool cuda_convolution_is_product(const struct convolution_dims *d);
int64_t columns_width(const struct convolution_dims *d);   /* numbers of a column */
int64_t columns_pixels(const struct convolution_dims *d);  /* of y */
int64_t columns_samples(const struct convolution_dims *d); /* samples that are columns at a time */
size_t cuda_convolution_weights_bytes(const struct convolution_dims *d);
size_t cuda_convolution_dx_bytes(const struct convolution_dims *d, enum kernels_precision precision);
/* The most that an engine may ask for: going forward and for dw, and for dx. */
size_t cuda_convolution_engine_bytes(const struct convolution_dims *d);
size_t cuda_convolution_dx_engine_bytes(const struct convolution_dims *d, enum kernels_precision precision);

/* What kernels_described tells of: NULL for a precision that there is none of. */
const struct kernels *cuda_described(enum kernels_precision precision, bool fast);

#ifdef __cplusplus
}
#endif

#endif
