/* Compares the gradient that a kernel computes with central finite differences of the op's formula in double
 * (reference.h). */
#ifndef TESTS_KERNELS_GRADIENT_H
#define TESTS_KERNELS_GRADIENT_H

#include "kernels/kernels.h"

/* A scalar loss of an op: the sum of weight * output. ctx holds the op's inputs in double. */
typedef double (*loss_fn)(const void *ctx);

/* Returns the same values in double. The caller frees them with free(). */
double *doubles_of(const float *a, int64_t n);
double weighted(const double *out, const float *weight, int64_t n);

/* Checks d loss / d x against the kernel's gradient at up to 97 elements, spread over x. */
void check_gradient(const char *what, loss_fn loss, const void *ctx, double *x, const float *gradient, int64_t n);

/* Calls `check` with an fp32 table of 2 threads for each instruction set of this processor. */
void for_each_isa(void (*check)(struct kernels *k));

#endif
