/* Central finite differences of an op's formula in double (reference.h) against the gradient that a kernel gives. */
#ifndef TESTS_KERNELS_GRADIENT_H
#define TESTS_KERNELS_GRADIENT_H

#include "kernels/kernels.h"

/* A scalar loss, sum of weight * output, of an op whose inputs in double stand in ctx. */
typedef double (*loss_fn)(const void *ctx);

/* The same values in double; free with free(). */
double *widened(const float *a, int64_t n);
double weighted(const double *out, const float *weight, int64_t n);

/* d loss / d x, at up to 97 places spread over x, must be what the kernel says. */
void check_gradient(const char *what, loss_fn loss, const void *ctx, double *x, const float *gradient, int64_t n);

/* On a table of fp32 with 2 threads for each instruction set of this processor. */
void for_each_isa(void (*check)(struct kernels *k));

#endif
