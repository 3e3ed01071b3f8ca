/* The linear_* entries of the table that are matrix products; the same for every instruction set. See kernels.h. */
#ifndef KERNELS_CPU_LINEAR_H
#define KERNELS_CPU_LINEAR_H

#include "kernels/kernels.h"

KERNEL_OP(linear_forward, linear_forward);
KERNEL_OP(linear_backward_input, linear_backward_input);
KERNEL_OP(linear_backward_weight, linear_backward_weight);
KERNEL_OP(linear_memory, linear_memory);

#endif
