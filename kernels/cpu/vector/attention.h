/* Attention. See kernels.h. */
#ifndef KERNELS_CPU_VECTOR_ATTENTION_H
#define KERNELS_CPU_VECTOR_ATTENTION_H

#include "kernels/cpu/vector/ops.h"

status_t VECTOR(attention_forward)(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                   const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                   struct err *e);
status_t VECTOR(attention_backward)(const struct kernels *k, element_t *dqkv, const element_t *dout,
                                    const element_t *qkv, const element_t *out, const float *lse,
                                    const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                    struct err *e);

/* bf16 on AVX512-BF16 (attention_pairs.c). */
status_t VECTOR(attention_forward_pairs)(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                         const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                         struct err *e);
status_t VECTOR(attention_backward_pairs)(const struct kernels *k, element_t *dqkv, const element_t *dout,
                                          const element_t *qkv, const element_t *out, const float *lse,
                                          const struct attention_dims *d, const struct dropout *dropout,
                                          void *workspace, struct err *e);

#endif
