/* Layer norm and RMS norm. RMS norm has no mean and no beta. */
#include "kernels/cpu/piece.h"
#include "kernels/cpu/plain/ops.h"

#include <math.h>

/* mean NULL: RMS norm. */
static void norm_row(element *y, float *mean, float *rstd, const element *x, const element *gamma, const element *beta,
                     int64_t width, float epsilon) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; mean && c < width; c++)
        sum += float_of(x[c]);
    const double center = sum / (double)width;
    for (int64_t c = 0; c < width; c++)
        squares += (float_of(x[c]) - center) * (float_of(x[c]) - center);
    if (mean)
        *mean = (float)center;
    *rstd = (float)(1.0 / sqrt(squares / (double)width + epsilon));
    for (int64_t c = 0; c < width; c++)
        y[c] = element_of((float_of(x[c]) - (mean ? *mean : 0)) * *rstd * float_of(gamma[c]) +
                          (beta ? float_of(beta[c]) : 0));
}

status_t PLAIN(layernorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *mean, float *rstd,
                                  const element_t *x, const element_t *branch, const element_t *gamma,
                                  const element_t *beta, int64_t rows, int64_t width, float epsilon, struct err *e) {
    if (branch) {
        TRY(k->add(k, r, x, branch, rows * width, e));
        x = r;
    }
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        norm_row(AT(y, row * width), mean + row, rstd + row, AT(x, row * width), gamma, beta, width, epsilon);
    return ST_OK;
}

status_t PLAIN(rmsnorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *rstd, const element_t *x,
                                const element_t *branch, const element_t *gamma, int64_t rows, int64_t width,
                                float epsilon, struct err *e) {
    if (branch) {
        TRY(k->add(k, r, x, branch, rows * width, e));
        x = r;
    }
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        norm_row(AT(y, row * width), NULL, rstd + row, AT(x, row * width), gamma, NULL, width, epsilon);
    return ST_OK;
}

/* The inputs of backward for one row. mean NULL: RMS norm. */
struct row {
    const element *dy, *addend, *x, *gamma;
    const float *mean, *rstd;
};

static struct row row_of(const element_t *dy, const element_t *addend, const element_t *x, const element_t *gamma,
                         const float *mean, const float *rstd, int64_t row, int64_t width) {
    const int64_t at = row * width;
    return (struct row){ AT(dy, at),   AT_OR_NULL(addend, at),   AT(x, at),
                         AT(gamma, 0), mean ? mean + row : NULL, rstd + row };
}

/* With n = (x - mean) rstd and h = dy gamma:  dx = rstd (h - avg(h) - n avg(h n)). Without a mean, avg(h) is not
 * subtracted. */
static void backward_row(element *dx, float *dgamma, float *dbeta, const struct row *a, int64_t width) {
    const float mean = a->mean ? *a->mean : 0, rstd = *a->rstd;
    double sum_h = 0, sum_hn = 0;
    for (int64_t c = 0; c < width; c++) {
        const float dy = float_of(a->dy[c]), n = (float_of(a->x[c]) - mean) * rstd, h = dy * float_of(a->gamma[c]);
        sum_h += h;
        sum_hn += h * n;
        dgamma[c] += dy * n;
        dbeta[c] += dy;
    }
    const float avg_h = a->mean ? (float)(sum_h / (double)width) : 0, avg_hn = (float)(sum_hn / (double)width);
    for (int64_t c = 0; c < width; c++) {
        const float n = (float_of(a->x[c]) - mean) * rstd, h = float_of(a->dy[c]) * float_of(a->gamma[c]);
        dx[c] = element_of(rstd * (h - avg_h - n * avg_hn) + (a->addend ? float_of(a->addend[c]) : 0));
    }
}

static void add_pieces(float *sum, const float *partial, int64_t pieces, int64_t stride, int64_t width,
                       bool accumulate) {
    for (int64_t c = 0; c < width; c++) {
        float s = 0;
        for (int64_t i = 0; i < pieces; i++)
            s += partial[i * stride + c];
        sum[c] = accumulate ? sum[c] + s : s;
    }
}

status_t PLAIN(layernorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, float *dbeta,
                                   const element_t *dy, const element_t *addend, const element_t *x, const float *mean,
                                   const float *rstd, const element_t *gamma, int64_t rows, int64_t width,
                                   bool accumulate, void *workspace, struct err *e) {
    (void)e;
    const int64_t pieces = piece_count(rows);
    float *partial = workspace; /* (pieces, 2, width): dgamma, dbeta */
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        float *part = partial + i * 2 * width;
        for (int64_t c = 0; c < 2 * width; c++)
            part[c] = 0;
        for (int64_t row = piece_begin(rows, i); row < piece_begin(rows, i + 1); row++) {
            const struct row a = row_of(dy, addend, x, gamma, mean, rstd, row, width);
            backward_row(AT(dx, row * width), part, part + width, &a, width);
        }
    }
    add_pieces(dgamma, partial, pieces, 2 * width, width, accumulate);
    if (dbeta)
        add_pieces(dbeta, partial + width, pieces, 2 * width, width, accumulate);
    return ST_OK;
}

status_t PLAIN(rmsnorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, const element_t *dy,
                                 const element_t *addend, const element_t *x, const float *rstd, const element_t *gamma,
                                 int64_t rows, int64_t width, bool accumulate, void *workspace, struct err *e) {
    return PLAIN(layernorm_backward)(k, dx, dgamma, NULL, dy, addend, x, NULL, rstd, gamma, rows, width, accumulate,
                                     workspace, e);
}
