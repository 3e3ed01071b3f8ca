/* Convolutions of single pixels are linear layers on the pixels that the stride selects. They are computed as matrix
 * products, whose bits do not depend on the number of threads either. (oneDNN 2.6 has its own version, which writes
 * beyond its scratchpad if there is a stride and few channels.) */
#ifndef KERNELS_CPU_CONVOLUTION_1X1_H
#define KERNELS_CPU_CONVOLUTION_1X1_H

#include "kernels/kernels.h"

static inline bool convolution_is_1x1(const struct convolution_dims *d) { return d->kernel == 1 && d->padding == 0; }

/* Same arguments as the functions of the table, for such shapes. */
KERNEL_OP(convolution_1x1_forward, convolution_forward);
KERNEL_OP(convolution_1x1_backward_input, convolution_backward_input);
KERNEL_OP(convolution_1x1_backward_weight, convolution_backward_weight);
KERNEL_OP(convolution_1x1_workspace, convolution_workspace);

#endif
