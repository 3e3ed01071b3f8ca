/* A discrete Fourier transform of one line by radix-2 steps (Cooley and Tukey 1965), in the type that the file which
 * includes this asks for:
 *
 *     #define RADIX2_NUMBER float
 *     #include "kernels/radix2.h"
 *
 * n complex numbers, n a power of two, real and imaginary parts each `stride` apart (an array of pairs has twice its
 * own); sign -1 forward, 1 back; not scaled. factor: [n / 2] cosine and sine of sign 2 pi k / n, which radix2_factor
 * computes once for many lines of one length; NULL = computed again, with the same bits. Pure; any thread. */
#ifndef KERNELS_RADIX2_H
#define KERNELS_RADIX2_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

struct radix2_factor {
    double re, im;
};

/* exp(sign pi i k / half). */
static inline struct radix2_factor radix2_factor(int64_t k, int64_t half, int sign) {
    const double angle = sign * M_PI * (double)k / (double)half;
    return (struct radix2_factor){ cos(angle), sin(angle) };
}

/* Puts a line in the order of reversed bits. */
static inline void radix2_order(RADIX2_NUMBER *re, RADIX2_NUMBER *im, int64_t n, int64_t stride) {
    for (int64_t i = 1, j = 0; i < n; i++) {
        int64_t bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            const RADIX2_NUMBER a = re[i * stride], b = im[i * stride];
            re[i * stride] = re[j * stride], im[i * stride] = im[j * stride];
            re[j * stride] = a, im[j * stride] = b;
        }
    }
}

static inline void radix2_line(RADIX2_NUMBER *re, RADIX2_NUMBER *im, int64_t n, int64_t stride, int sign,
                               const struct radix2_factor *factor) {
    radix2_order(re, im, n, stride);
    for (int64_t half = 1; half < n; half *= 2)
        for (int64_t k = 0; k < half; k++) {
            const struct radix2_factor w = factor ? factor[k * (n / 2 / half)] : radix2_factor(k, half, sign);
            const RADIX2_NUMBER wr = (RADIX2_NUMBER)w.re, wi = (RADIX2_NUMBER)w.im;
            for (int64_t at = k; at < n; at += 2 * half) {
                RADIX2_NUMBER *ar = re + at * stride, *ai = im + at * stride, *br = ar + half * stride,
                              *bi = ai + half * stride;
                const RADIX2_NUMBER tr = wr * *br - wi * *bi, ti = wr * *bi + wi * *br;
                *br = *ar - tr, *bi = *ai - ti;
                *ar += tr, *ai += ti;
            }
        }
}

#endif
