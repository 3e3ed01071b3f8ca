/* Ops on fp32 in every precision. See kernels.h. */
#ifndef KERNELS_CPU_VECTOR_FLOATS_H
#define KERNELS_CPU_VECTOR_FLOATS_H

#include "kernels/cpu/vector/ops.h"

KERNEL_OP(VECTOR_ISA(accumulate), accumulate);
KERNEL_OP(VECTOR_ISA(fill), fill);
KERNEL_OP(VECTOR_ISA(sum_squares), sum_squares);
KERNEL_OP(VECTOR_ISA(all_finite), all_finite);

#endif
