/* The plain ops, one function for each entry of the table that is not a matrix product; kernels.h says what they do.
 * Pure but for their outputs; the vector side calls plain_embedding_* too, where vectors have nothing to add. */
#ifndef KERNELS_CPU_PLAIN_OPS_H
#define KERNELS_CPU_PLAIN_OPS_H

#include "kernels/kernels.h"

status_t plain_linear_backward_bias(const struct kernels *k, float *dbias, float *dy, const float *pre,
                                    const struct linear_dims *d, bool accumulate, void *workspace, struct err *e);
status_t plain_embedding_forward(const struct kernels *k, float *y, const int32_t *tokens, const float *wte,
                                 const float *wpe, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                 struct err *e);
status_t plain_embedding_backward(const struct kernels *k, float *dwte, float *dwpe, const int32_t *tokens,
                                  const float *dy, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                  int64_t positions, bool accumulate, struct err *e);
status_t plain_layernorm_forward(const struct kernels *k, float *y, float *r, float *mean, float *rstd, const float *x,
                                 const float *branch, const float *gamma, const float *beta, int64_t rows,
                                 int64_t width, float epsilon, struct err *e);
status_t plain_layernorm_backward(const struct kernels *k, float *dx, float *dgamma, float *dbeta, const float *dy,
                                  const float *addend, const float *x, const float *mean, const float *rstd,
                                  const float *gamma, int64_t rows, int64_t width, bool accumulate, void *workspace,
                                  struct err *e);
status_t plain_attention_forward(const struct kernels *k, float *out, float *lse, const float *qkv,
                                 const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                 struct err *e);
status_t plain_attention_backward(const struct kernels *k, float *dqkv, const float *dout, const float *qkv,
                                  const float *out, const float *lse, const struct attention_dims *d,
                                  const struct dropout *dropout, void *workspace, struct err *e);
status_t plain_cross_entropy(const struct kernels *k, float *losses, float *logits, const int32_t *targets,
                             int64_t rows, int64_t vocabulary, float scale, bool gradient, struct err *e);
status_t plain_gelu_forward(const struct kernels *k, float *y, const float *x, int64_t n, struct err *e);
status_t plain_gelu_backward(const struct kernels *k, float *dx, const float *dy, const float *x, int64_t n,
                             struct err *e);
status_t plain_dropout(const struct kernels *k, float *y, const float *x, int64_t samples, int64_t n,
                       const struct dropout *dropout, struct err *e);
status_t plain_add(const struct kernels *k, float *y, const float *a, const float *b, int64_t n, struct err *e);
status_t plain_accumulate(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e);
status_t plain_scale(const struct kernels *k, float *a, float factor, int64_t n, struct err *e);
status_t plain_fill(const struct kernels *k, float *a, float value, int64_t n, struct err *e);
status_t plain_tree_add(const struct kernels *k, float *const part[], int count, int64_t n, struct err *e);
status_t plain_adamw(const struct kernels *k, float *p, float *m, float *v, const float *g, int64_t n,
                     const struct adamw *o, struct err *e);
status_t plain_sum_squares(const struct kernels *k, double *sums, const float *a, int64_t n, struct err *e);
status_t plain_all_finite(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e);

#endif
