#include "engine/data/reconstruction.h"

#include "kernels/normal.h"
#include "kernels/philox.h"

#include <string.h>

/* Makes these random numbers independent of those of other users of the seed, and the two splits independent of each
 * other. */
static const uint64_t STREAMS[SOURCE_SPLITS] = { 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu };
enum { DRAW_ROWS, DRAW_NOISE };

static void draw(enum source_split split, int64_t seed, int64_t sample, uint32_t block, uint32_t what,
                 uint32_t ret[4]) {
    const uint32_t counter[4] = { (uint32_t)sample, (uint32_t)((uint64_t)sample >> 32), block, what };
    philox4x32_10(counter, (uint64_t)seed ^ STREAMS[split], ret);
}

void measurement_rows(const struct measurement *m, enum source_split split, int64_t seed, int64_t sample,
                      uint8_t *rows) {
    int others[FOURIER_SIDE], n = 0; /* 32 KiB */
    memset(rows, 0, (size_t)m->side);
    for (int i = 0; i < m->side; i++) {
        /* the i-th lowest frequency: 0, 1, -1, 2, -2, ... */
        int row = i % 2 ? (i + 1) / 2 : (m->side - i / 2) % m->side;
        if (i < m->centre_rows)
            rows[row] = 1;
        else
            others[n++] = row;
    }
    /* A partial Fisher-Yates shuffle: draws the other rows without replacement. */
    for (int i = 0; i < m->rows - m->centre_rows; i++) {
        uint32_t random[4];
        draw(split, seed, sample, (uint32_t)i, DRAW_ROWS, random);
        int chosen = i + (int)((uint64_t)random[0] * (uint64_t)(n - i) >> 32);
        rows[others[chosen]] = 1;
        others[chosen] = others[i];
    }
}

void measurement_make(const struct measurement *m, enum source_split split, int64_t seed, int64_t sample,
                      const uint8_t *rows, const float *image, struct complex_number *spectrum, float *measurements) {
    const int N = m->side, all = N * N;
    for (int i = 0; i < all; i++)
        spectrum[i] = (struct complex_number){ (double)image[i], 0 };
    fourier_transform(m->fourier, spectrum);
    for (int i = 0; i < all; i++) {
        float re = 0, im = 0;
        if (rows[i / N]) {
            uint32_t random[4];
            float noise[2];
            /* One draw serves the numbers i and i + 1 of an even i. Its counter is their place, so the noise of a
             * number does not depend on the rows that are measured. */
            draw(split, seed, sample, (uint32_t)(i / 2), DRAW_NOISE, random);
            normal2(random + 2 * (i % 2), noise);
            re = (float)spectrum[i].re + m->noise * noise[0];
            im = (float)spectrum[i].im + m->noise * noise[1];
        }
        measurements[i] = re;
        measurements[all + i] = im;
    }
}
