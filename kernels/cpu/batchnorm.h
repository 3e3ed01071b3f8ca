/* What batch normalisation computes for each column, between its passes over the rows: shared by plain/ and vector/.
 *
 * Workspace: (pieces, 2, width) partial sums, in double going forward, then BATCHNORM_COLUMNS floats a column. */
#ifndef KERNELS_CPU_BATCHNORM_H
#define KERNELS_CPU_BATCHNORM_H

#include "kernels/cpu/piece.h"
#include "kernels/kernels.h"

#include <math.h>

enum { BATCHNORM_COLUMNS = 5 };

static inline size_t batchnorm_workspace(const struct kernels *k, const struct batchnorm_dims *d) {
    (void)k;
    return (size_t)d->width * ((size_t)piece_count(d->rows) * 2 * sizeof(double) + BATCHNORM_COLUMNS * sizeof(float));
}

static inline float batchnorm_rstd(float variance, const struct batchnorm_dims *d) {
    return 1.0f / sqrtf(variance + d->epsilon);
}

/* Computes the mean and variance of one column from the sums and sums of squares of its pieces. The sum and the sum of
 * squares of a piece are `width` apart, and pieces are 2 width apart. */
static inline void batchnorm_moments(float *mean, float *variance, const double *partial,
                                     const struct batchnorm_dims *d) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < piece_count(d->rows); i++) {
        sum += partial[i * 2 * d->width];
        squares += partial[(i * 2 + 1) * d->width];
    }
    const double m = sum / (double)d->rows, v = squares / (double)d->rows - m * m;
    *mean = (float)m;
    *variance = v > 0 ? (float)v : 0;
}

/* dx = g * G + x * X + ONE, where g, x and one are the factors G, X and ONE of each column; and the sums from which
 * dgamma and dbeta are made. */
struct batchnorm_columns {
    float *sum_g, *sum_gn; /* over all rows */
    float *g, *x, *one;
};

static inline struct batchnorm_columns batchnorm_columns(float *at, const struct batchnorm_dims *d) {
    return (struct batchnorm_columns){ at, at + d->width, at + 2 * d->width, at + 3 * d->width, at + 4 * d->width };
}

/* dx = gamma rstd (g - avg(g) - n avg(g n)), n = (x - mean) rstd, as the three factors of a line in g and x. */
static inline void batchnorm_column(const struct batchnorm_columns *a, int64_t c, const float *partial, float mean,
                                    float variance, float gamma, const struct batchnorm_dims *d) {
    const float rstd = batchnorm_rstd(variance, d), rows = (float)d->rows;
    float sum_g = 0, sum_gn = 0;
    for (int64_t i = 0; i < piece_count(d->rows); i++) {
        sum_g += partial[i * 2 * d->width + c];
        sum_gn += partial[(i * 2 + 1) * d->width + c];
    }
    a->sum_g[c] = sum_g;
    a->sum_gn[c] = sum_gn;
    a->g[c] = gamma * rstd;
    a->x[c] = -gamma * rstd * rstd * (sum_gn / rows);
    a->one[c] = -gamma * rstd * (sum_g / rows) - mean * a->x[c];
}

static inline void batchnorm_put(float *to, float value, bool accumulate) { *to = accumulate ? *to + value : value; }

static inline void batchnorm_parameters(float *dgamma, float *dbeta, float *measured_mean, float *measured_variance,
                                        const struct batchnorm_columns *a, const float *mean, const float *variance,
                                        const struct batchnorm_dims *d, bool accumulate) {
    const float unbiased = d->rows > 1 ? (float)((double)d->rows / (double)(d->rows - 1)) : 1;
    for (int64_t c = 0; c < d->width; c++) {
        batchnorm_put(dgamma + c, a->sum_gn[c], accumulate);
        batchnorm_put(dbeta + c, a->sum_g[c], accumulate);
        if (measured_mean)
            batchnorm_put(measured_mean + c, mean[c], accumulate);
        if (measured_variance)
            batchnorm_put(measured_variance + c, variance[c] * unbiased, accumulate);
    }
}

#endif
