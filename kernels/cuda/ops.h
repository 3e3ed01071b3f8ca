/* The functions that enter the table, one for each entry. kernels.h describes them. Both C and .cu files define
 * them, so their names have C linkage. */
#ifndef KERNELS_CUDA_OPS_H
#define KERNELS_CUDA_OPS_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ops of this folder's .cu files and of memory.c, by file: cuda_NAME is the entry NAME. */
#define CUDA_OPS(OP)                                                                                                   \
    /* memory.c */                                                                                                     \
    OP(memory_new);                                                                                                    \
    OP(memory_free);                                                                                                   \
    OP(upload);                                                                                                        \
    OP(download);                                                                                                      \
    OP(upload_elements);                                                                                               \
    OP(upload_ahead);                                                                                                  \
    OP(ahead_await);                                                                                                   \
    OP(ahead_release);                                                                                                 \
    OP(move);                                                                                                          \
    OP(move_rows);                                                                                                     \
    OP(finish);                                                                                                        \
    OP(copy);                                                                                                          \
    /* linear_bias.cu */                                                                                               \
    OP(linear_backward_bias);                                                                                          \
    /* embedding.cu */                                                                                                 \
    OP(embedding_forward);                                                                                             \
    OP(embedding_backward);                                                                                            \
    /* norm.cu */                                                                                                      \
    OP(layernorm_forward);                                                                                             \
    OP(layernorm_backward);                                                                                            \
    OP(rmsnorm_forward);                                                                                               \
    OP(rmsnorm_backward);                                                                                              \
    /* rope.cu */                                                                                                      \
    OP(rope);                                                                                                          \
    /* batchnorm.cu */                                                                                                 \
    OP(batchnorm_forward);                                                                                             \
    OP(batchnorm_apply);                                                                                               \
    OP(batchnorm_backward);                                                                                            \
    /* pooling.cu */                                                                                                   \
    OP(max_pool_forward);                                                                                              \
    OP(max_pool_backward);                                                                                             \
    OP(average_pool_forward);                                                                                          \
    OP(average_pool_backward);                                                                                         \
    /* patches.cu */                                                                                                   \
    OP(channels_last);                                                                                                 \
    OP(patches);                                                                                                       \
    OP(class_token_forward);                                                                                           \
    OP(class_token_backward);                                                                                          \
    OP(first_forward);                                                                                                 \
    OP(first_backward);                                                                                                \
    /* fourier.cu */                                                                                                   \
    OP(fourier_adjoint);                                                                                               \
    OP(fourier_step_forward);                                                                                          \
    OP(fourier_step_backward);                                                                                         \
    /* cross_entropy.cu */                                                                                             \
    OP(cross_entropy);                                                                                                 \
    OP(top1);                                                                                                          \
    /* squared_error.cu */                                                                                             \
    OP(squared_error);                                                                                                 \
    OP(psnr);                                                                                                          \
    /* elementwise.cu */                                                                                               \
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
    OP(convert);                                                                                                       \
    OP(convert_to_fp32);                                                                                               \
    OP(accumulate);                                                                                                    \
    OP(exchange);                                                                                                      \
    OP(fill);                                                                                                          \
    /* floats.cu */                                                                                                    \
    OP(decide);                                                                                                        \
    OP(sum_squares);                                                                                                   \
    OP(sum);                                                                                                           \
    OP(sum_rows);                                                                                                      \
    OP(all_finite);                                                                                                    \
    OP(elements_finite);                                                                                               \
    /* optimizer.cu */                                                                                                 \
    OP(adamw);                                                                                                         \
    OP(sgd);                                                                                                           \
    OP(lion);                                                                                                          \
    OP(momentum);                                                                                                      \
    OP(sgd_step);                                                                                                      \
    OP(scale_add);                                                                                                     \
    OP(running_mean);                                                                                                  \
    OP(normalise);                                                                                                     \
    /* adafactor.cu */                                                                                                 \
    OP(adafactor)

#define CUDA_DECLARE(op) KERNEL_OP(cuda_##op, op)
CUDA_OPS(CUDA_DECLARE);
#undef CUDA_DECLARE

/* Enters the ops of this folder's .cu files except attention and convolutions. */
void cuda_table(struct kernels *t);

/* --- library_table.c: ops that NVIDIA's libraries compute, at least in part ----------------------------------------*/
void cuda_library_table(struct kernels *t);

/* --- memory.c ------------------------------------------------------------------------------------------------------*/
/* The faults that kernels have found. Each is returned once. */
status_t cuda_faults_take(const struct cuda *c, struct err *e);

/* --- queue.c: events, pinned memory, capture -----------------------------------------------------------------------*/
void cuda_queue_table(struct kernels *t);

/* --- watch.c: timers, ranges ---------------------------------------------------------------------------------------*/
void cuda_watch_table(struct kernels *t);

/* --- linear.c ------------------------------------------------------------------------------------------------------*/
KERNEL_OP(cuda_linear_forward, linear_forward);
KERNEL_OP(cuda_linear_backward_input, linear_backward_input);
KERNEL_OP(cuda_linear_backward_weight, linear_backward_weight);
KERNEL_OP(cuda_tuning_cache, tuning_cache);

/* --- attention.c ---------------------------------------------------------------------------------------------------*/
/* cuda_attention_workspace. Also makes cuDNN's plans for the shape. */
size_t cuda_attention_prepare(const struct kernels *k, const struct attention_dims *d);
KERNEL_OP(cuda_attention_forward, attention_forward);
KERNEL_OP(cuda_attention_backward, attention_backward);

/* --- convolution.c -------------------------------------------------------------------------------------------------*/
/* cuda_convolution_workspace. Also makes cuDNN's plans for the shape. */
size_t cuda_convolution_prepare(const struct kernels *k, const struct convolution_dims *d);
KERNEL_OP(cuda_convolution_forward, convolution_forward);
KERNEL_OP(cuda_convolution_backward_input, convolution_backward_input);
KERNEL_OP(cuda_convolution_backward_weight, convolution_backward_weight);

#ifdef __cplusplus
}
#endif

#endif
