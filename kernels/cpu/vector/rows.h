/* Ops that go over a tensor row by row: norms, rotary positions, the bias of a linear layer, the loss. See kernels.h.
 */
#ifndef KERNELS_CPU_VECTOR_ROWS_H
#define KERNELS_CPU_VECTOR_ROWS_H

#include "kernels/cpu/vector/ops.h"

status_t VECTOR(linear_backward_bias)(const struct kernels *k, float *dbias, element_t *dy, const element_t *pre,
                                      const struct linear_dims *d, bool accumulate, void *workspace, struct err *e);
status_t VECTOR(layernorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *mean, float *rstd,
                                   const element_t *x, const element_t *branch, const element_t *gamma,
                                   const element_t *beta, int64_t rows, int64_t width, float epsilon, struct err *e);
status_t VECTOR(layernorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, float *dbeta,
                                    const element_t *dy, const element_t *addend, const element_t *x, const float *mean,
                                    const float *rstd, const element_t *gamma, int64_t rows, int64_t width,
                                    bool accumulate, void *workspace, struct err *e);
status_t VECTOR(rmsnorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *rstd, const element_t *x,
                                 const element_t *branch, const element_t *gamma, int64_t rows, int64_t width,
                                 float epsilon, struct err *e);
status_t VECTOR(rmsnorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, const element_t *dy,
                                  const element_t *addend, const element_t *x, const float *rstd,
                                  const element_t *gamma, int64_t rows, int64_t width, bool accumulate, void *workspace,
                                  struct err *e);
status_t VECTOR(rope)(const struct kernels *k, element_t *to, const element_t *from, const struct attention_dims *d,
                      const struct rope *r, bool inverse, struct err *e);
status_t VECTOR(cross_entropy)(const struct kernels *k, float *losses, element_t *logits, const int32_t *targets,
                               int64_t rows, int64_t vocabulary, const float *scale, struct err *e);

#endif
