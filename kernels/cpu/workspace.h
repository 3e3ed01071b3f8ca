/* Bytes of workspace that a call needs, the same for every instruction set. See kernels.h. */
#ifndef KERNELS_CPU_WORKSPACE_H
#define KERNELS_CPU_WORKSPACE_H

#include "kernels/kernels.h"

size_t workspace_linear_backward_bias(const struct kernels *k, const struct linear_dims *d);
size_t workspace_linear_backward_weight(const struct kernels *k, const struct linear_dims *d);
size_t workspace_embedding_backward(const struct kernels *k, int64_t batch, int64_t time, int64_t width);
size_t workspace_norm_backward(const struct kernels *k, int64_t rows, int64_t width);
size_t workspace_attention(const struct kernels *k, const struct attention_dims *d);

#endif
