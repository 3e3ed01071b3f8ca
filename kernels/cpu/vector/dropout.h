/* Dropout. See kernels.h; cpu/mask.h defines which elements are kept. */
#ifndef KERNELS_CPU_VECTOR_DROPOUT_H
#define KERNELS_CPU_VECTOR_DROPOUT_H

#include "kernels/cpu/mask.h"
#include "kernels/cpu/vector/ops.h"

status_t VECTOR(dropout)(const struct kernels *k, element_t *y, const element_t *x, int64_t samples, int64_t n,
                         const struct dropout *dropout, struct err *e);

/* Room for the factors of n elements from any first one: mask_row works in runs of up to 64 that begin at a multiple
 * of 4. */
#define MASK_ROW_FLOATS(n) ((n) + 68)

/* The factors (0 or 1 / (1 - probability)) of n elements of a sample from element `first` on; they begin at the
 * returned place in buf, which has MASK_ROW_FLOATS(n) floats. */
const float *VECTOR(mask_row)(const struct mask *m, int64_t sample, int64_t first, int64_t n, float *buf);

#endif
