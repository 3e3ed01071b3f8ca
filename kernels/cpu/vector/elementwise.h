/* Ops that touch each element once. See kernels.h. */
#ifndef KERNELS_CPU_VECTOR_ELEMENTWISE_H
#define KERNELS_CPU_VECTOR_ELEMENTWISE_H

#include "kernels/cpu/vector/ops.h"

status_t VECTOR(gelu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e);
status_t VECTOR(gelu_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                               int64_t n, struct err *e);
status_t VECTOR(swiglu_forward)(const struct kernels *k, element_t *y, const element_t *gate_up, int64_t rows,
                                int64_t width, struct err *e);
status_t VECTOR(swiglu_backward)(const struct kernels *k, element_t *d_gate_up, const element_t *dy,
                                 const element_t *gate_up, int64_t rows, int64_t width, struct err *e);
status_t VECTOR(relu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e);
status_t VECTOR(relu_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *y,
                               int64_t n, struct err *e);
status_t VECTOR(add)(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                     struct err *e);
status_t VECTOR(copy)(const struct kernels *k, element_t *to, const element_t *from, int64_t n, struct err *e);
status_t VECTOR(convert)(const struct kernels *k, element_t *to, const float *from, int64_t n, struct err *e);
status_t VECTOR(widen)(const struct kernels *k, float *to, const element_t *from, int64_t n, struct err *e);
status_t VECTOR(elements_finite)(const struct kernels *k, bool *ret, const element_t *a, int64_t n, struct err *e);
/* n numbers on the calling thread. */
void VECTOR(convert_row)(element_t *to, const float *from, int64_t n);
void VECTOR(widen_row)(float *to, const element_t *from, int64_t n);

#endif
