/* The linear_* entries of the table that are matrix products; the same for every instruction set. See kernels.h. */
#ifndef KERNELS_CPU_LINEAR_H
#define KERNELS_CPU_LINEAR_H

#include "kernels/kernels.h"

status_t linear_forward(const struct kernels *k, float *y, float *pre, const float *x, const float *w,
                        const float *bias, const struct linear_dims *d, struct err *e);
status_t linear_backward_input(const struct kernels *k, float *dx, const float *dy, const float *w,
                               const struct linear_dims *d, bool accumulate, struct err *e);
status_t linear_backward_weight(const struct kernels *k, float *dw, const float *x, const float *dy,
                                const struct linear_dims *d, bool accumulate, void *workspace, struct err *e);

#endif
