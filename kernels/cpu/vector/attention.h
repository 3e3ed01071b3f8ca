/* Causal attention. See kernels.h. */
#ifndef KERNELS_CPU_VECTOR_ATTENTION_H
#define KERNELS_CPU_VECTOR_ATTENTION_H

#include "kernels/cpu/vector/ops.h"

status_t VECTOR(attention_forward)(const struct kernels *k, float *out, float *lse, const float *qkv,
                                   const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                   struct err *e);
status_t VECTOR(attention_backward)(const struct kernels *k, float *dqkv, const float *dout, const float *qkv,
                                    const float *out, const float *lse, const struct attention_dims *d,
                                    const struct dropout *dropout, void *workspace, struct err *e);

#endif
