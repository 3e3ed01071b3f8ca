/* The second pass of a sum over rows: adds the pieces (piece.h) in an order that their number fixes.
 */
#ifndef KERNELS_CUDA_PIECES_H
#define KERNELS_CUDA_PIECES_H

#include "kernels/cuda/cuda.h"

/* sum (width) = the sum over the pieces of partial (pieces, width), rows of which are `stride` apart; added to sum
 * where accumulate. */
MUST_CHECK status_t pieces_add(const struct kernels *k, float *sum, const float *partial, int64_t pieces,
                               int64_t stride, int64_t width, bool accumulate, struct err *e);

#endif
