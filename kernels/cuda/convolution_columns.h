/* Convolutions as matrix products: the windows of x are laid out as rows, one for each pixel of y, in the order
 * (kernel, kernel, in), so that channels stay side by side. What cuDNN does not do. */
#ifndef KERNELS_CUDA_CONVOLUTION_COLUMNS_H
#define KERNELS_CUDA_CONVOLUTION_COLUMNS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* columns (batch height' width', kernel kernel in); zeros for padding. */
MUST_CHECK status_t columns_of(const struct kernels *k, element_t *columns, const element_t *x,
                               const struct convolution_dims *d, struct err *e);
/* dx, each number the sum of the gradients of all columns that read it, window by window. */
MUST_CHECK status_t columns_back(const struct kernels *k, element_t *dx, const float *columns,
                                 const struct convolution_dims *d, bool accumulate, struct err *e);
/* dw (out, in, kernel, kernel) from packed (out, kernel, kernel, in), elements of the table. */
MUST_CHECK status_t columns_weight(const struct kernels *k, float *dw, const element_t *packed,
                                   const struct convolution_dims *d, bool accumulate, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
