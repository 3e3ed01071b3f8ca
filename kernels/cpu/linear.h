/* The linear_* entries of the table that are matrix products; the same for every instruction set. See kernels.h. */
#ifndef KERNELS_CPU_LINEAR_H
#define KERNELS_CPU_LINEAR_H

#include "kernels/kernels.h"

status_t linear_forward(const struct kernels *k, element_t *y, element_t *pre, const element_t *x, const element_t *w,
                        const element_t *bias, const struct linear_dims *d, struct err *e);
status_t linear_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                               const struct linear_dims *d, bool accumulate, struct err *e);
status_t linear_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                const struct linear_dims *d, bool accumulate, void *workspace, struct err *e);

#endif
