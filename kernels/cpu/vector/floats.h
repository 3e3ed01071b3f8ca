/* Ops on fp32 in every precision. See kernels.h. */
#ifndef KERNELS_CPU_VECTOR_FLOATS_H
#define KERNELS_CPU_VECTOR_FLOATS_H

#include "kernels/cpu/vector/ops.h"

status_t VECTOR_ISA(accumulate)(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e);
status_t VECTOR_ISA(fill)(const struct kernels *k, float *a, float value, int64_t n, struct err *e);
status_t VECTOR_ISA(sum_squares)(const struct kernels *k, const struct norm_span *spans, int n_spans, struct err *e);
status_t VECTOR_ISA(all_finite)(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e);

#endif
