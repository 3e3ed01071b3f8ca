/* The measurement of an image: some rows of its Fourier transform (fourier.h), with noise. A sample is
 *
 *   BATCH_REFERENCE     (1,N,N)  the image in grey, 0 .. 1
 *   BATCH_MASK          (1,N,N)  1 in a measured row, else 0
 *   BATCH_MEASUREMENTS  (2,N,N)  real and imaginary part of mask * (F(image) + noise)
 *
 * round(sampled_fraction N) rows are measured in every sample, at least one: first the round(center_fraction N) of the
 * lowest frequencies (0, 1, -1, 2, ...), the others drawn without replacement. The noise is normal, with the same
 * standard deviation in both parts. Rows and noise are drawn by Philox with the seed as key and the sample as counter:
 * anew in every epoch for training, the same at every evaluation for validation.
 *
 * The measurement is that of accelerated magnetic resonance imaging with one coil (Lustig et al. 2007). Private to this
 * folder. */
#ifndef ENGINE_DATA_RECONSTRUCTION_H
#define ENGINE_DATA_RECONSTRUCTION_H

#include "engine/data/fourier.h"
#include "engine/data/source.h"

#include <stdint.h>

struct measurement {
    int side, rows, centre_rows; /* rows: measured in all */
    float noise;
    const struct fourier *fourier; /* of this side */
};

/* rows (side): 1 = the row is measured, else 0. */
void measurement_rows(const struct measurement *m, enum source_split split, int64_t seed, int64_t sample,
                      uint8_t *rows);

/* From an image (N,N) and its rows: measurements (2,N,N). spectrum: workspace (N,N). */
void measurement_make(const struct measurement *m, enum source_split split, int64_t seed, int64_t sample,
                      const uint8_t *rows, const float *image, struct complex_number *spectrum, float *measurements);

#endif
