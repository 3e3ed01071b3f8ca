/* Convolutions and their gradients of x by oneDNN, with primitives cached by shape; kernels.h describes the functions.
 * Convolutions of single pixels are products (convolution_1x1.h). Gradients of weights are computed by vector/
 * (convolution_weight.h).
 *
 * Bits do not depend on the number of threads by construction: a primitive is always built for one thread, and the team
 * divides the samples. If a batch is smaller than the team, some threads are idle.
 *
 * Each call reorders the weights to the layout of oneDNN's inner loop. If oneDNN does not compute in the table's
 * precision on this processor, samples are converted to fp32 one by one.
 *
 * A struct convolutions belongs to one thread at a time. */
#ifndef KERNELS_CPU_CONVOLUTION_H
#define KERNELS_CPU_CONVOLUTION_H

#include "kernels/kernels.h"

struct convolutions;

/* direct: oneDNN computes in this precision. */
MUST_CHECK status_t convolutions_new(enum kernels_precision precision, bool direct, int threads,
                                     struct convolutions **ret, struct err *e);
struct convolutions *convolutions_free(struct convolutions *c);
/* Uses a team of `threads` from now on, and drops all cached primitives. */
void convolutions_set_threads(struct convolutions *c, int threads);

KERNEL_OP(convolution_forward, convolution_forward);
KERNEL_OP(convolution_backward_input, convolution_backward_input);
/* to += from, n numbers. `from` holds fp32 if fp32 is set, otherwise elements. Runs on one thread. */
void convolution_add_row(const struct kernels *k, element_t *to, const void *from, int64_t n, bool fp32);

KERNEL_OP(convolution_workspace, convolution_workspace);

#endif
