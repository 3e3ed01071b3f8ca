#include "kernels/cpu/batchnorm.h"

#include "kernels/cpu/piece.h"
#include "kernels/cpu/plain/ops.h"

#include <math.h>

/* Each column's sum and sum of squares over a piece's rows. The sums are double, so that one pass is enough. */
static void piece_moments(double *sum, double *squares, const element *x, int64_t rows, int64_t width) {
    for (int64_t c = 0; c < width; c++)
        sum[c] = squares[c] = 0;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < width; c++) {
            const double a = float_of(x[row * width + c]);
            sum[c] += a;
            squares[c] += a * a;
        }
}

static void apply_row(element *y, const element *x, const element *residual, const float *scale, const float *shift,
                      const struct batchnorm_dims *d) {
    for (int64_t c = 0; c < d->width; c++) {
        const float a = float_of(x[c]) * scale[c] + shift[c] + (residual ? float_of(residual[c]) : 0);
        y[c] = element_of(d->relu && a < 0 ? 0 : a);
    }
}

status_t PLAIN(batchnorm_apply)(const struct kernels *k, element_t *y, const element_t *x, const element_t *residual,
                                const element_t *gamma, const element_t *beta, const float *mean, const float *variance,
                                const struct batchnorm_dims *d, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < d->rows; row++)
        for (int64_t c = 0; c < d->width; c++) {
            const int64_t at = row * d->width + c;
            const float n = (float_of(*AT(x, at)) - mean[c]) * batchnorm_rstd(variance[c], d);
            const float a = n * float_of(*AT(gamma, c)) + float_of(*AT(beta, c)) +
                            (residual ? float_of(*AT(residual, at)) : 0);
            *AT(y, at) = element_of(d->relu && a < 0 ? 0 : a);
        }
    return ST_OK;
}

/* With g = dy where y > 0 and n = (x - mean) rstd: each column's sums of g and g n. */
static void piece_sums(float *sum_g, float *sum_gn, const element *dy, const element *x, const element *y,
                       const float *mean, const float *variance, int64_t rows, const struct batchnorm_dims *d) {
    for (int64_t c = 0; c < d->width; c++)
        sum_g[c] = sum_gn[c] = 0;
    for (int64_t at = 0; at < rows * d->width; at++) {
        const int64_t c = at % d->width;
        const float g = d->relu && !(float_of(y[at]) > 0) ? 0 : float_of(dy[at]);
        sum_g[c] += g;
        sum_gn[c] += g * (float_of(x[at]) - mean[c]) * batchnorm_rstd(variance[c], d);
    }
}

/* dx = gamma rstd (g - avg(g) - n avg(g n)). */
static void row_gradient(element *dx, element *d_residual, const element *dy, const element *x, const element *y,
                         const struct batchnorm_columns *a, const struct batchnorm_dims *d) {
    for (int64_t c = 0; c < d->width; c++) {
        const float g = d->relu && !(float_of(y[c]) > 0) ? 0 : float_of(dy[c]);
        if (d_residual)
            d_residual[c] = element_of(g);
        dx[c] = element_of(g * a->g[c] + float_of(x[c]) * a->x[c] + a->one[c]);
    }
}

#define BATCHNORM(name) PLAIN(name)
#include "kernels/cpu/batchnorm_passes.h"
