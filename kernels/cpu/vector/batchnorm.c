#include "kernels/cpu/batchnorm.h"

#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/images.h"

/* Columns are taken LANES at a time down a piece's rows, so that sums stay in registers. */
static void piece_moments(double *sum, double *squares, const element *x, int64_t rows, int64_t width) {
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        vd s0 = vd_zero(), s1 = vd_zero(), q0 = vd_zero(), q1 = vd_zero();
        for (int64_t row = 0; row < rows; row++) {
            const vf a = ve_load_first(x + row * width + c, lanes);
            const vd low = vd_low(a), high = vd_high(a);
            s0 = vd_add(s0, low);
            s1 = vd_add(s1, high);
            q0 = vd_fma(low, low, q0);
            q1 = vd_fma(high, high, q1);
        }
        double s[LANES], q[LANES];
        vd_store(s, s0), vd_store(s + LANES / 2, s1), vd_store(q, q0), vd_store(q + LANES / 2, q1);
        for (int64_t i = 0; i < lanes; i++) {
            sum[c + i] = s[i];
            squares[c + i] = q[i];
        }
    }
}

static void apply_row(element *y, const element *x, const element *residual, const float *scale, const float *shift,
                      const struct batchnorm_dims *d) {
    for (int64_t c = 0; c < d->width; c += LANES) {
        const int64_t lanes = lanes_at(c, d->width);
        vf a = vf_fma(ve_load_first(x + c, lanes), vf_load_first(scale + c, lanes), vf_load_first(shift + c, lanes));
        if (residual)
            a = vf_add(a, ve_load_first(residual + c, lanes));
        ve_store_first(y + c, d->relu ? vf_zero_below(a, a, vf_set(0)) : a, lanes);
    }
}

status_t VECTOR(batchnorm_forward)(const struct kernels *k, element_t *y, float *mean, float *variance,
                                   const element_t *x, const element_t *residual, const element_t *gamma,
                                   const element_t *beta, const struct batchnorm_dims *d, void *workspace,
                                   struct err *e) {
    (void)e;
    const int64_t pieces = piece_count(d->rows), width = d->width;
    double *partial = workspace; /* (pieces, 2, width) */
    float *scale = (float *)(partial + pieces * 2 * width), *shift = scale + width;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t first = piece_begin(d->rows, i);
        piece_moments(partial + i * 2 * width, partial + (i * 2 + 1) * width, AT(x, first * width),
                      piece_begin(d->rows, i + 1) - first, width);
    }
    for (int64_t c = 0; c < width; c++) {
        batchnorm_moments(mean + c, variance + c, partial + c, d);
        scale[c] = float_of(*AT(gamma, c)) * batchnorm_rstd(variance[c], d);
        shift[c] = float_of(*AT(beta, c)) - mean[c] * scale[c];
    }
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < d->rows; row++)
        apply_row(AT(y, row * width), AT(x, row * width), AT_OR_NULL(residual, row * width), scale, shift, d);
    return ST_OK;
}

/* With g = dy where y > 0 and n = (x - mean) rstd: each column's sums of g and g n. */
static void piece_sums(float *sum_g, float *sum_gn, const element *dy, const element *x, const element *y,
                       const float *mean, const float *variance, int64_t rows, const struct batchnorm_dims *d) {
    for (int64_t c = 0; c < d->width; c += LANES) {
        const int64_t lanes = lanes_at(c, d->width);
        const vf m = vf_load_first(mean + c, lanes);
        vf s = vf_set(0), q = vf_set(0);
        for (int64_t row = 0; row < rows; row++) {
            const int64_t at = row * d->width + c;
            vf g = ve_load_first(dy + at, lanes);
            if (d->relu)
                g = vf_where_above_zero(g, ve_load_first(y + at, lanes));
            s = vf_add(s, g);
            q = vf_fma(g, vf_sub(ve_load_first(x + at, lanes), m), q);
        }
        vf_store_first(sum_g + c, s, lanes);
        vf_store_first(sum_gn + c, q, lanes);
    }
    for (int64_t c = 0; c < d->width; c++)
        sum_gn[c] *= batchnorm_rstd(variance[c], d);
}

/* dx = gamma rstd (g - avg(g) - n avg(g n)). */
static void row_gradient(element *dx, element *d_residual, const element *dy, const element *x, const element *y,
                         const struct batchnorm_columns *a, const struct batchnorm_dims *d) {
    for (int64_t c = 0; c < d->width; c += LANES) {
        const int64_t lanes = lanes_at(c, d->width);
        vf g = ve_load_first(dy + c, lanes);
        if (d->relu)
            g = vf_where_above_zero(g, ve_load_first(y + c, lanes));
        if (d_residual)
            ve_store_first(d_residual + c, g, lanes);
        const vf line = vf_fma(ve_load_first(x + c, lanes), vf_load_first(a->x + c, lanes),
                               vf_load_first(a->one + c, lanes));
        ve_store_first(dx + c, vf_fma(g, vf_load_first(a->g + c, lanes), line), lanes);
    }
}

status_t VECTOR(batchnorm_backward)(const struct kernels *k, element_t *dx, element_t *d_residual, float *dgamma,
                                    float *dbeta, float *measured_mean, float *measured_variance, const element_t *dy,
                                    const element_t *x, const element_t *y, const float *mean, const float *variance,
                                    const element_t *gamma, const struct batchnorm_dims *d, bool accumulate,
                                    void *workspace, struct err *e) {
    (void)e;
    const int64_t pieces = piece_count(d->rows), width = d->width;
    float *partial = workspace; /* (pieces, 2, width) */
    const struct batchnorm_columns columns = batchnorm_columns(partial + pieces * 2 * width, d);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t first = piece_begin(d->rows, i), at = first * width;
        piece_sums(partial + i * 2 * width, partial + (i * 2 + 1) * width, AT(dy, at), AT(x, at), AT(y, at), mean,
                   variance, piece_begin(d->rows, i + 1) - first, d);
    }
    for (int64_t c = 0; c < width; c++)
        batchnorm_column(&columns, c, partial, mean[c], variance[c], float_of(*AT(gamma, c)), d);
    batchnorm_parameters(dgamma, dbeta, measured_mean, measured_variance, &columns, mean, variance, d, accumulate);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < d->rows; row++)
        row_gradient(AT(dx, row * width), AT_OR_NULL(d_residual, row * width), AT(dy, row * width), AT(x, row * width),
                     AT(y, row * width), &columns, d);
    return ST_OK;
}
