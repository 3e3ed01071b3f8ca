/* Ops that go over a tensor row by row: norms, rotary positions, the bias of a linear layer, the loss. See kernels.h.
 */
#ifndef KERNELS_CPU_VECTOR_ROWS_H
#define KERNELS_CPU_VECTOR_ROWS_H

#include "kernels/cpu/vector/ops.h"

#define VECTOR_ROW_OPS(OP)                                                                                             \
    OP(linear_backward_bias);                                                                                          \
    OP(layernorm_forward);                                                                                             \
    OP(layernorm_backward);                                                                                            \
    OP(rmsnorm_forward);                                                                                               \
    OP(rmsnorm_backward);                                                                                              \
    OP(rope);                                                                                                          \
    OP(cross_entropy)
VECTOR_ROW_OPS(VECTOR_DECLARE);

#endif
