/* The second pass of a sum over rows: adds the pieces (piece.h) in an order that depends on their number alone. */
#ifndef KERNELS_CUDA_PIECES_H
#define KERNELS_CUDA_PIECES_H

#include "kernels/cuda/cuda.h"

/* sum (width) = the sum over the pieces of partial (pieces, width), whose rows are `stride` apart. accumulate: the
 * result is added to sum. second (width), or NULL: the same for the columns width .. 2 width - 1, in the same
 * launch. */
MUST_CHECK status_t pieces_add(const struct kernels *k, float *sum, float *second, const float *partial, int64_t pieces,
                               int64_t stride, int64_t width, bool accumulate, struct err *e);

#endif
