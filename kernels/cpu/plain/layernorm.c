#include "kernels/cpu/piece.h"
#include "kernels/cpu/plain/ops.h"

#include <math.h>

static void norm_row(float *y, float *mean, float *rstd, const float *x, const float *gamma, const float *beta,
                     int64_t width, float epsilon) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < width; c++)
        sum += x[c];
    const double center = sum / (double)width;
    for (int64_t c = 0; c < width; c++)
        squares += (x[c] - center) * (x[c] - center);
    *mean = (float)center;
    *rstd = (float)(1.0 / sqrt(squares / (double)width + epsilon));
    for (int64_t c = 0; c < width; c++)
        y[c] = (x[c] - *mean) * *rstd * gamma[c] + (beta ? beta[c] : 0);
}

status_t plain_layernorm_forward(const struct kernels *k, float *y, float *r, float *mean, float *rstd, const float *x,
                                 const float *branch, const float *gamma, const float *beta, int64_t rows,
                                 int64_t width, float epsilon, struct err *e) {
    if (branch) {
        TRY(k->add(k, r, x, branch, rows * width, e));
        x = r;
    }
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        norm_row(y + row * width, mean + row, rstd + row, x + row * width, gamma, beta, width, epsilon);
    return ST_OK;
}

/* With n = (x - mean) rstd and h = dy gamma:  dx = rstd (h - avg(h) - n avg(h n)). */
static void backward_row(float *dx, float *dgamma, float *dbeta, const float *dy, const float *addend, const float *x,
                         float mean, float rstd, const float *gamma, int64_t width) {
    double sum_h = 0, sum_hn = 0;
    for (int64_t c = 0; c < width; c++) {
        float n = (x[c] - mean) * rstd, h = dy[c] * gamma[c];
        sum_h += h;
        sum_hn += h * n;
        dgamma[c] += dy[c] * n;
        dbeta[c] += dy[c];
    }
    const float avg_h = (float)(sum_h / (double)width), avg_hn = (float)(sum_hn / (double)width);
    for (int64_t c = 0; c < width; c++) {
        float n = (x[c] - mean) * rstd, h = dy[c] * gamma[c];
        dx[c] = rstd * (h - avg_h - n * avg_hn) + (addend ? addend[c] : 0);
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

status_t plain_layernorm_backward(const struct kernels *k, float *dx, float *dgamma, float *dbeta, const float *dy,
                                  const float *addend, const float *x, const float *mean, const float *rstd,
                                  const float *gamma, int64_t rows, int64_t width, bool accumulate, void *workspace,
                                  struct err *e) {
    (void)e;
    const int64_t pieces = piece_count(rows);
    float *partial = workspace; /* (pieces, 2, width): dgamma, dbeta */
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        float *part = partial + i * 2 * width;
        for (int64_t c = 0; c < 2 * width; c++)
            part[c] = 0;
        for (int64_t row = piece_begin(rows, i); row < piece_begin(rows, i + 1); row++)
            backward_row(dx + row * width, part, part + width, dy + row * width, addend ? addend + row * width : NULL,
                         x + row * width, mean[row], rstd[row], gamma, width);
    }
    add_pieces(dgamma, partial, pieces, 2 * width, width, accumulate);
    if (dbeta)
        add_pieces(dbeta, partial + width, pieces, 2 * width, width, accumulate);
    return ST_OK;
}
