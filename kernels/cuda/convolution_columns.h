/* Convolutions as matrix products, for shapes that cuDNN does not compute. The windows of x become rows, one for
 * each pixel of y, in the order (kernel, kernel, in), so that channels stay adjacent. */
#ifndef KERNELS_CUDA_CONVOLUTION_COLUMNS_H
#define KERNELS_CUDA_CONVOLUTION_COLUMNS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* columns (batch height' width', kernel kernel in), with zeros for padding. */
MUST_CHECK status_t columns_of(const struct kernels *k, element_t *columns, const element_t *x,
                               const struct convolution_dims *d, struct err *e);
/* dx: each number is the sum of the gradients of all columns that read it, in the order of the windows. */
MUST_CHECK status_t columns_back(const struct kernels *k, element_t *dx, const float *columns,
                                 const struct convolution_dims *d, bool accumulate, struct err *e);
/* dw (out, in, kernel, kernel) from packed (out, kernel, kernel, in), whose elements have the table's precision. */
MUST_CHECK status_t columns_weight(const struct kernels *k, float *dw, const element_t *packed,
                                   const struct convolution_dims *d, bool accumulate, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
