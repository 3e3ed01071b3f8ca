#include "executor/engine/data/reconstruction.h"

#include "kernels/normal.h"
#include "kernels/philox.h"

#include <string.h>

/* Keeps these draws apart from those of other users of the seed, and the two parts apart. */
static const uint64_t STREAMS[SOURCE_PARTS] = { 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu };
enum { DRAW_ROWS, DRAW_NOISE };

static void draw(enum source_part part, int64_t seed, int64_t sample, uint32_t block, uint32_t what, uint32_t ret[4]) {
    const uint32_t counter[4] = { (uint32_t)sample, (uint32_t)((uint64_t)sample >> 32), block, what };
    philox4x32_10(counter, (uint64_t)seed ^ STREAMS[part], ret);
}

void measurement_rows(const struct measurement *m, enum source_part part, int64_t seed, int64_t sample, uint8_t *rows) {
    int others[FOURIER_SIDE], n = 0; /* 32 KiB */
    memset(rows, 0, (size_t)m->side);
    for (int i = 0; i < m->side; i++) {
        /* i-th lowest frequency: 0, 1, -1, 2, -2, ... */
        int row = i % 2 ? (i + 1) / 2 : (m->side - i / 2) % m->side;
        if (i < m->centre_rows)
            rows[row] = 1;
        else
            others[n++] = row;
    }
    for (int i = 0; i < m->rows - m->centre_rows; i++) {
        uint32_t random[4];
        draw(part, seed, sample, (uint32_t)i, DRAW_ROWS, random);
        int chosen = i + (int)((uint64_t)random[0] * (uint64_t)(n - i) >> 32);
        rows[others[chosen]] = 1;
        others[chosen] = others[i];
    }
}

void measurement_make(const struct measurement *m, enum source_part part, int64_t seed, int64_t sample,
                      const uint8_t *rows, const float *image, struct complex_number *room, float *measurements) {
    const int N = m->side, all = N * N;
    for (int i = 0; i < all; i++)
        room[i] = (struct complex_number){ (double)image[i], 0 };
    fourier_transform(m->fourier, room);
    for (int i = 0; i < all; i++) {
        float re = 0, im = 0;
        if (rows[i / N]) {
            uint32_t random[4];
            float noise[2];
            draw(part, seed, sample, (uint32_t)(i / 2), DRAW_NOISE, random);
            normal2(random + 2 * (i % 2), noise);
            re = (float)room[i].re + m->noise * noise[0];
            im = (float)room[i].im + m->noise * noise[1];
        }
        measurements[i] = re;
        measurements[all + i] = im;
    }
}
