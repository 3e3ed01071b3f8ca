/* Convolutions and their gradients of x by oneDNN, their primitives cached by shape, but for those of single pixels
 * (convolution_1x1.h); kernels.h says what the functions do.
 *
 * Bits do not depend on the number of threads by construction: a primitive is always built for one thread, and the team
 * shares out samples. A batch smaller than the team leaves threads idle. (Gradients of weights are vector/'s own:
 * convolution_weight.h.)
 *
 * Weights are brought into the order of oneDNN's inner loop at each call. Where oneDNN does not compute in the table's
 * precision on this processor, samples are widened to fp32 one by one.
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

status_t convolution_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *w,
                             const element_t *bias, const struct convolution_dims *d, void *workspace, struct err *e);
status_t convolution_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                                    const struct convolution_dims *d, bool accumulate, void *workspace, struct err *e);
/* to += from, n numbers, which are elements or fp32. One thread. */
void convolution_add_row(const struct kernels *k, element_t *to, const void *from, int64_t n, bool fp32);

size_t convolution_workspace(const struct kernels *k, const struct convolution_dims *d);

#endif
