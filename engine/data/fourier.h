/* The discrete Fourier transform in two dimensions of N x N numbers, N a power of two, orthonormal:
 *
 *     F[u][v] = 1/N sum_yx f[y][x] exp(-2 pi i (u y + v x) / N)
 *
 * with the zero frequency at [0][0]. kernels/radix2.h transforms the lines, in double. Private to this folder. */
#ifndef ENGINE_DATA_FOURIER_H
#define ENGINE_DATA_FOURIER_H

#include "base/cleanup.h"
#include "base/status.h"

enum { FOURIER_SIDE = 8192 };

/* Precomputed factors for transforms of one size; any number of threads may use it. */
struct fourier;
/* n: a power of two in 1 .. FOURIER_SIDE; asserted. */
struct fourier *fourier_new(int n);
struct fourier *fourier_free(struct fourier *f);
CLEANUP_DEFINE(struct fourier *, fourier_free)

struct complex_number {
    double re, im;
};

/* In place: data (N,N). */
void fourier_transform(const struct fourier *f, struct complex_number *data);

#endif
