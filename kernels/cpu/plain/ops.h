/* The plain ops: one function for each entry of the table that is not a matrix product. kernels.h describes them. The
 * functions change only their outputs. The vector tables use the plain embedding too, because vectors bring no gain
 * there. */
#ifndef KERNELS_CPU_PLAIN_OPS_H
#define KERNELS_CPU_PLAIN_OPS_H

#include "kernels/cpu/element.h"

/* --- on fp32 alone -------------------------------------------------------------------------------------------------*/
#define PLAIN_FLOAT_OPS(OP)                                                                                            \
    OP(accumulate);                                                                                                    \
    OP(exchange);                                                                                                      \
    OP(fill);                                                                                                          \
    OP(sum_squares);                                                                                                   \
    OP(sum);                                                                                                           \
    OP(sum_rows);                                                                                                      \
    OP(decide);                                                                                                        \
    OP(all_finite)

#define PLAIN_DECLARE(op) KERNEL_OP(plain_##op, op)
PLAIN_FLOAT_OPS(PLAIN_DECLARE);
#undef PLAIN_DECLARE

/* --- on elements: PLAIN(add) is plain_fp32_add, plain_bf16_add or plain_fp16_add -----------------------------------*/
#if defined ELEMENT_NAME
#define PLAIN_(name)  plain_##name
#define PLAIN__(name) PLAIN_(name)
#define PLAIN(name)   PLAIN__(ELEMENT_NAME(name))

#define PLAIN_OPS(OP)                                                                                                  \
    OP(linear_backward_bias);                                                                                          \
    OP(embedding_forward);                                                                                             \
    OP(embedding_backward);                                                                                            \
    OP(layernorm_forward);                                                                                             \
    OP(layernorm_backward);                                                                                            \
    OP(rmsnorm_forward);                                                                                               \
    OP(rmsnorm_backward);                                                                                              \
    OP(rope);                                                                                                          \
    OP(attention_forward);                                                                                             \
    OP(attention_backward);                                                                                            \
    OP(top1);                                                                                                          \
    OP(squared_error);                                                                                                 \
    OP(psnr);                                                                                                          \
    OP(convolution_forward);                                                                                           \
    OP(convolution_backward_input);                                                                                    \
    OP(convolution_backward_weight);                                                                                   \
    OP(batchnorm_forward);                                                                                             \
    OP(batchnorm_apply);                                                                                               \
    OP(batchnorm_backward);                                                                                            \
    OP(max_pool_forward);                                                                                              \
    OP(max_pool_backward);                                                                                             \
    OP(average_pool_forward);                                                                                          \
    OP(average_pool_backward);                                                                                         \
    OP(channels_last);                                                                                                 \
    OP(patches);                                                                                                       \
    OP(class_token_forward);                                                                                           \
    OP(class_token_backward);                                                                                          \
    OP(first_forward);                                                                                                 \
    OP(first_backward);                                                                                                \
    OP(fourier_adjoint);                                                                                               \
    OP(fourier_step_forward);                                                                                          \
    OP(fourier_step_backward);                                                                                         \
    OP(cross_entropy);                                                                                                 \
    OP(gelu_forward);                                                                                                  \
    OP(gelu_backward);                                                                                                 \
    OP(gelu_erf_forward);                                                                                              \
    OP(gelu_erf_backward);                                                                                             \
    OP(swiglu_forward);                                                                                                \
    OP(swiglu_backward);                                                                                               \
    OP(relu_forward);                                                                                                  \
    OP(relu_backward);                                                                                                 \
    OP(dropout);                                                                                                       \
    OP(add);                                                                                                           \
    OP(copy);                                                                                                          \
    OP(convert);                                                                                                       \
    OP(convert_to_fp32);                                                                                               \
    OP(elements_finite)

#define PLAIN_DECLARE(op) KERNEL_OP(PLAIN(op), op)
PLAIN_OPS(PLAIN_DECLARE);
#undef PLAIN_DECLARE

void PLAIN(convert_row)(element_t *to, const float *from, int64_t n);
void PLAIN(convert_row_to_fp32)(float *to, const element_t *from, int64_t n);
#endif

#endif
