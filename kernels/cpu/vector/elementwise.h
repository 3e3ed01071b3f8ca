/* Ops that touch each element once. See kernels.h. */
#ifndef KERNELS_CPU_VECTOR_ELEMENTWISE_H
#define KERNELS_CPU_VECTOR_ELEMENTWISE_H

#include "kernels/cpu/vector/ops.h"

#define VECTOR_ELEMENTWISE_OPS(OP)                                                                                     \
    OP(gelu_forward);                                                                                                  \
    OP(gelu_backward);                                                                                                 \
    OP(gelu_erf_forward);                                                                                              \
    OP(gelu_erf_backward);                                                                                             \
    OP(swiglu_forward);                                                                                                \
    OP(swiglu_backward);                                                                                               \
    OP(relu_forward);                                                                                                  \
    OP(relu_backward);                                                                                                 \
    OP(add);                                                                                                           \
    OP(copy);                                                                                                          \
    OP(convert);                                                                                                       \
    OP(convert_to_fp32);                                                                                               \
    OP(elements_finite)
VECTOR_ELEMENTWISE_OPS(VECTOR_DECLARE);
/* n numbers on the calling thread. */
void VECTOR(convert_row)(element_t *to, const float *from, int64_t n);
void VECTOR(convert_row_to_fp32)(float *to, const element_t *from, int64_t n);

#endif
