/* How an image is measured: whole rows of its Fourier transform (fourier.h), some of them, with noise. A sample is
 *
 *   BATCH_REFERENCE     (1,N,N)  the image, grey, 0 .. 1
 *   BATCH_MASK          (1,N,N)  1 in a measured row, else 0
 *   BATCH_MEASUREMENTS  (2,N,N)  real and imaginary part of mask * (F(image) + noise)
 *
 * round(sampled_fraction N) rows are measured in every sample, at least one: first the round(center_fraction N) of the
 * lowest frequencies (0, 1, -1, 2, ...), the others drawn without replacement. The noise is normal, of the same
 * deviation in both parts. Both are drawn by Philox keyed by the seed and counted by the sample, anew in every epoch;
 * validation has the same ones at every evaluation.
 *
 * The measurement is that of accelerated magnetic resonance imaging with one coil (Lustig et al. 2007). Private to this
 * folder. */
#ifndef EXECUTOR_ENGINE_DATA_RECONSTRUCTION_H
#define EXECUTOR_ENGINE_DATA_RECONSTRUCTION_H

#include "executor/engine/data/fourier.h"
#include "executor/engine/data/source.h"

#include <stdint.h>

struct measurement {
    int side, rows, centre_rows; /* rows: measured in all */
    float noise;
    const struct fourier *fourier; /* of this side */
};

/* rows (side) = 1 where a row is measured. */
void measurement_rows(const struct measurement *m, enum source_part part, int64_t seed, int64_t sample, uint8_t *rows);

/* From an image (N,N) and its rows: measurements (2,N,N). room: (N,N). */
void measurement_make(const struct measurement *m, enum source_part part, int64_t seed, int64_t sample,
                      const uint8_t *rows, const float *image, struct complex_number *room, float *measurements);

#endif
