/* Dropout. See kernels.h; cpu/mask.h defines which elements are kept. */
#ifndef KERNELS_CPU_VECTOR_DROPOUT_H
#define KERNELS_CPU_VECTOR_DROPOUT_H

#include "kernels/cpu/mask.h"
#include "kernels/cpu/vector/ops.h"

KERNEL_OP(VECTOR(dropout), dropout);

/* Size of a buffer for the factors of n elements from any first element: mask_row works in runs of up to 64 elements
 * that begin at a multiple of 4. */
#define MASK_ROW_FLOATS(n) ((n) + 68)

/* Computes the factors (0 or 1 / (1 - probability)) of n elements of a sample from element `first` on. Returns their
 * position in buf, which has MASK_ROW_FLOATS(n) floats. */
const float *VECTOR(mask_row)(const struct mask *m, int64_t sample, int64_t first, int64_t n, float *buf);

#endif
