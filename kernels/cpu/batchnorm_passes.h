/* The passes of batch norm over the rows, forward and back. plain/batchnorm.c and vector/batchnorm.c include this file
 * last, after they have defined these functions for a piece or a row:
 *
 *     piece_moments   each column's sum and sum of squares over a piece's rows
 *     apply_row       y of a row, by a scale and a shift for each column
 *     piece_sums      with g = dy where y > 0 and n = (x - mean) rstd: each column's sums of g and g n
 *     row_gradient    dx of a row, and g, by batchnorm_columns
 *     BATCHNORM(name) the name of a function in that file */
status_t BATCHNORM(batchnorm_forward)(const struct kernels *k, element_t *y, float *mean, float *variance,
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

status_t BATCHNORM(batchnorm_backward)(const struct kernels *k, element_t *dx, element_t *d_residual, float *dgamma,
                                       float *dbeta, float *measured_mean, float *measured_variance,
                                       const element_t *dy, const element_t *x, const element_t *y, const float *mean,
                                       const float *variance, const element_t *gamma, const struct batchnorm_dims *d,
                                       bool accumulate, void *workspace, struct err *e) {
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
