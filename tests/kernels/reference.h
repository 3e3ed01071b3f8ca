/* The ops' forward passes in double, written from their formulas, for central finite differences. Plain loops only. */
#ifndef TESTS_KERNELS_REFERENCE_H
#define TESTS_KERNELS_REFERENCE_H

#include "kernels/kernels.h"

void reference_gelu(double *y, const double *x, int64_t n);
void reference_gelu_erf(double *y, const double *x, int64_t n);
/* branch and beta may be NULL. */
void reference_layernorm(double *y, const double *x, const double *branch, const double *gamma, const double *beta,
                         int64_t rows, int64_t width, double epsilon);
/* x already includes branch. */
void reference_rmsnorm(double *y, const double *x, const double *gamma, int64_t rows, int64_t width, double epsilon);
void reference_swiglu(double *y, const double *gate_up, int64_t rows, int64_t width);
/* One head's row of `head` numbers at a position, without scaling. */
void reference_rope(double *y, const double *x, int64_t head, int64_t position, double theta);
/* lse may be NULL. */
void reference_attention(double *out, double *lse, const double *qkv, const struct attention_dims *d,
                         const struct dropout *dropout);
/* losses (rows) */
void reference_cross_entropy(double *losses, const double *logits, const int32_t *targets, int64_t rows,
                             int64_t vocabulary);
void reference_embedding(double *y, const int32_t *tokens, const double *wte, const double *wpe, int64_t batch,
                         int64_t time, int64_t width);
/* The factor by which dropout multiplies an element, computed by a plain Philox. */
double reference_mask(const struct dropout *d, int64_t sample, int64_t element);

#endif
