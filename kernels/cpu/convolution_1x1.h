/* Convolutions of single pixels are linear layers on the pixels that the stride leaves: matrix products, whose bits do
 * not depend on threads either. (oneDNN 2.6's own, with a stride and few channels, writes behind its scratchpad.) */
#ifndef KERNELS_CPU_CONVOLUTION_1X1_H
#define KERNELS_CPU_CONVOLUTION_1X1_H

#include "kernels/kernels.h"

static inline bool convolution_is_1x1(const struct convolution_dims *d) { return d->kernel == 1 && d->padding == 0; }

/* As the functions of the table, for such shapes. */
status_t convolution_1x1_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *w,
                                 const element_t *bias, const struct convolution_dims *d, void *workspace,
                                 struct err *e);
status_t convolution_1x1_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                                        const struct convolution_dims *d, bool accumulate, void *workspace,
                                        struct err *e);
status_t convolution_1x1_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                         const struct convolution_dims *d, bool accumulate, void *workspace,
                                         struct err *e);
size_t convolution_1x1_workspace(const struct kernels *k, const struct convolution_dims *d);

#endif
