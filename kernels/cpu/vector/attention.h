/* Attention. See kernels.h. */
#ifndef KERNELS_CPU_VECTOR_ATTENTION_H
#define KERNELS_CPU_VECTOR_ATTENTION_H

#include "kernels/cpu/vector/ops.h"

#define VECTOR_ATTENTION_OPS(OP)                                                                                       \
    OP(attention_forward);                                                                                             \
    OP(attention_backward)
VECTOR_ATTENTION_OPS(VECTOR_DECLARE);

/* bf16 with AVX512-BF16 (attention_pairs.c). */
KERNEL_OP(VECTOR(attention_forward_pairs), attention_forward);
KERNEL_OP(VECTOR(attention_backward_pairs), attention_backward);

#endif
