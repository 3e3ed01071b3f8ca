/* Ops that touch each element once. See kernels.h. */
#ifndef KERNELS_CPU_VECTOR_ELEMENTWISE_H
#define KERNELS_CPU_VECTOR_ELEMENTWISE_H

#include "kernels/cpu/vector/ops.h"

status_t VECTOR(gelu_forward)(const struct kernels *k, float *y, const float *x, int64_t n, struct err *e);
status_t VECTOR(gelu_backward)(const struct kernels *k, float *dx, const float *dy, const float *x, int64_t n,
                               struct err *e);
status_t VECTOR(add)(const struct kernels *k, float *y, const float *a, const float *b, int64_t n, struct err *e);
status_t VECTOR(accumulate)(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e);
status_t VECTOR(fill)(const struct kernels *k, float *a, float value, int64_t n, struct err *e);
status_t VECTOR(adamw)(const struct kernels *k, float *p, float *m, float *v, const float *g, int64_t n,
                       const struct adamw *o, struct err *e);
status_t VECTOR(sum_squares)(const struct kernels *k, double *sums, const float *a, int64_t n, struct err *e);
status_t VECTOR(all_finite)(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e);

#endif
