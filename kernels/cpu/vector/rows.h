/* Ops that go over a tensor row by row: layer norm, the bias of a linear layer, the loss. See kernels.h. */
#ifndef KERNELS_CPU_VECTOR_ROWS_H
#define KERNELS_CPU_VECTOR_ROWS_H

#include "kernels/cpu/vector/ops.h"

status_t VECTOR(linear_backward_bias)(const struct kernels *k, float *dbias, float *dy, const float *pre,
                                      const struct linear_dims *d, bool accumulate, void *workspace, struct err *e);
status_t VECTOR(layernorm_forward)(const struct kernels *k, float *y, float *r, float *mean, float *rstd,
                                   const float *x, const float *branch, const float *gamma, const float *beta,
                                   int64_t rows, int64_t width, float epsilon, struct err *e);
status_t VECTOR(layernorm_backward)(const struct kernels *k, float *dx, float *dgamma, float *dbeta, const float *dy,
                                    const float *addend, const float *x, const float *mean, const float *rstd,
                                    const float *gamma, int64_t rows, int64_t width, bool accumulate, void *workspace,
                                    struct err *e);
status_t VECTOR(cross_entropy)(const struct kernels *k, float *losses, float *logits, const int32_t *targets,
                               int64_t rows, int64_t vocabulary, float scale, bool gradient, struct err *e);

#endif
