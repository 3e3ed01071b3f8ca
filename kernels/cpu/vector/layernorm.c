#include "kernels/cpu/vector/rows.h"

#include "kernels/cpu/piece.h"
#include "kernels/cpu/vector/add_pieces.h"

#include <math.h>

/* The sum of a row in double, so that width does not cost digits; with a branch the sum of both is kept in r. */
static double row_sum(float *r, const float *x, const float *branch, int64_t width) {
    vd low = vd_zero(), high = vd_zero();
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        vf a = vf_load_first(x + c, lanes);
        if (branch) {
            a = vf_add(a, vf_load_first(branch + c, lanes));
            vf_store_first(r + c, a, lanes);
        }
        low = vd_add(low, vd_low(a));
        high = vd_add(high, vd_high(a));
    }
    return vd_sum(vd_add(low, high));
}

/* The sum of (x - mean)^2: the second pass over a row that is in the cache by now. */
static float row_spread(const float *x, float mean, int64_t width) {
    const int64_t whole = width / LANES * LANES;
    vf sum = vf_set(0);
    for (int64_t c = 0; c < whole; c += LANES) {
        const vf a = vf_sub(vf_load(x + c), vf_set(mean));
        sum = vf_fma(a, a, sum);
    }
    float tail = 0;
    for (int64_t c = whole; c < width; c++)
        tail += (x[c] - mean) * (x[c] - mean);
    return vf_sum(sum) + tail;
}

static void row_norm(float *y, const float *x, float mean, float rstd, const float *gamma, const float *beta,
                     int64_t width) {
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        const vf n = vf_mul(vf_sub(vf_load_first(x + c, lanes), vf_set(mean)), vf_set(rstd));
        const vf b = beta ? vf_load_first(beta + c, lanes) : vf_set(0);
        vf_store_first(y + c, vf_fma(n, vf_load_first(gamma + c, lanes), b), lanes);
    }
}

status_t VECTOR(layernorm_forward)(const struct kernels *k, float *y, float *r, float *mean, float *rstd,
                                   const float *x, const float *branch, const float *gamma, const float *beta,
                                   int64_t rows, int64_t width, float epsilon, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        const double sum = row_sum(branch ? r + at : NULL, x + at, branch ? branch + at : NULL, width);
        const float *normed = branch ? r + at : x + at;
        mean[row] = (float)(sum / (double)width);
        rstd[row] = (float)(1.0 / sqrt((double)row_spread(normed, mean[row], width) / (double)width + epsilon));
        row_norm(y + at, normed, mean[row], rstd[row], gamma, beta, width);
    }
    return ST_OK;
}

struct row {
    const float *dy, *addend, *x, *gamma;
    float mean, rstd;
};

/* With n = (x - mean) rstd and h = dy gamma: the row's sums of h and h n, and its share of dgamma and dbeta. */
static void row_sums(const struct row *a, float *dgamma, float *dbeta, int64_t width, float *sum_h, float *sum_hn) {
    vf h_all = vf_set(0), hn_all = vf_set(0);
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        const vf dy = vf_load_first(a->dy + c, lanes), h = vf_mul(dy, vf_load_first(a->gamma + c, lanes));
        const vf n = vf_mul(vf_sub(vf_load_first(a->x + c, lanes), vf_set(a->mean)), vf_set(a->rstd));
        h_all = vf_add(h_all, h);
        hn_all = vf_fma(h, n, hn_all);
        vf_store_first(dgamma + c, vf_fma(dy, n, vf_load_first(dgamma + c, lanes)), lanes);
        vf_store_first(dbeta + c, vf_add(dy, vf_load_first(dbeta + c, lanes)), lanes);
    }
    *sum_h = vf_sum(h_all);
    *sum_hn = vf_sum(hn_all);
}

/* dx = rstd (h - avg(h) - n avg(h n)) + addend. */
static void row_gradient(float *dx, const struct row *a, int64_t width, float avg_h, float avg_hn) {
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        const vf h = vf_mul(vf_load_first(a->dy + c, lanes), vf_load_first(a->gamma + c, lanes));
        const vf n = vf_mul(vf_sub(vf_load_first(a->x + c, lanes), vf_set(a->mean)), vf_set(a->rstd));
        const vf centered = vf_fnma(n, vf_set(avg_hn), vf_sub(h, vf_set(avg_h)));
        const vf added = a->addend ? vf_load_first(a->addend + c, lanes) : vf_set(0);
        vf_store_first(dx + c, vf_fma(centered, vf_set(a->rstd), added), lanes);
    }
}

status_t VECTOR(layernorm_backward)(const struct kernels *k, float *dx, float *dgamma, float *dbeta, const float *dy,
                                    const float *addend, const float *x, const float *mean, const float *rstd,
                                    const float *gamma, int64_t rows, int64_t width, bool accumulate, void *workspace,
                                    struct err *e) {
    (void)e;
    const int64_t pieces = piece_count(rows);
    float *partial = workspace; /* (pieces, 2, width): dgamma, dbeta */
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        float *part = partial + i * 2 * width, sum_h, sum_hn;
        for (int64_t c = 0; c < 2 * width; c++)
            part[c] = 0;
        for (int64_t row = piece_begin(rows, i); row < piece_begin(rows, i + 1); row++) {
            const int64_t at = row * width;
            const struct row a = { dy + at, addend ? addend + at : NULL, x + at, gamma, mean[row], rstd[row] };
            row_sums(&a, part, part + width, width, &sum_h, &sum_hn);
            row_gradient(dx + at, &a, width, sum_h / (float)width, sum_hn / (float)width);
        }
    }
    add_pieces(dgamma, partial, pieces, 2 * width, width, accumulate);
    if (dbeta)
        add_pieces(dbeta, partial + width, pieces, 2 * width, width, accumulate);
    return ST_OK;
}
