/* Layer norm and RMS norm, forward and back. RMS norm has no mean and no beta.
 *
 * Forward, for each row: if there is a branch, the sum of x and branch is formed, rounded and stored. Then the mean is
 * computed, then the variance in a second pass over the row, then y. RMS norm skips the mean.
 *
 * Backward, for each row: row_sums computes two sums over the row and adds the row to dgamma and dbeta; row_gradient
 * then computes dx from the sums. Rows are divided into pieces by shape alone (piece.h). Each piece has its own sums of
 * dgamma and dbeta, and the sums of the pieces are added in their order. */
#include "kernels/cpu/vector/rows.h"

#include "kernels/cpu/piece.h"
#include "kernels/cpu/vector/add_pieces.h"
#include "kernels/cpu/vector/elements.h"

#include <math.h>

/* The vector at c of the row that is normalised: x, or x + branch, rounded and stored in r. */
static inline vf normed_at(element *r, const element *x, const element *branch, int64_t c, int64_t lanes) {
    const vf a = ve_load_first(x + c, lanes);
    return branch ? ve_store_back(r + c, vf_add(a, ve_load_first(branch + c, lanes)), lanes) : a;
}

/* The sum of a row, in double so that a large width does not lose digits. */
static double row_sum(element *r, const element *x, const element *branch, int64_t width) {
    vd low = vd_zero(), high = vd_zero();
    for (int64_t c = 0; c < width; c += LANES) {
        const vf a = normed_at(r, x, branch, c, lanes_at(c, width));
        low = vd_add(low, vd_low(a));
        high = vd_add(high, vd_high(a));
    }
    return vd_sum(vd_add(low, high));
}

/* The sum of (x - mean)^2. This is the second pass over a row, which is in the cache by then. */
static float row_spread(const element *x, float mean, int64_t width) {
    const int64_t whole = width / LANES * LANES;
    vf sum = vf_set(0);
    for (int64_t c = 0; c < whole; c += LANES) {
        const vf a = vf_sub(ve_load(x + c), vf_set(mean));
        sum = vf_fma(a, a, sum);
    }
    float tail = 0;
    for (int64_t c = whole; c < width; c++)
        tail += (float_of(x[c]) - mean) * (float_of(x[c]) - mean);
    return vf_sum(sum) + tail;
}

static float row_squares(element *r, const element *x, const element *branch, int64_t width) {
    vf sum = vf_set(0);
    for (int64_t c = 0; c < width; c += LANES) {
        const vf a = normed_at(r, x, branch, c, lanes_at(c, width));
        sum = vf_fma(a, a, sum);
    }
    return vf_sum(sum);
}

static void row_norm(element *y, const element *x, float mean, float rstd, const element *gamma, const element *beta,
                     int64_t width) {
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        const vf n = vf_mul(vf_sub(ve_load_first(x + c, lanes), vf_set(mean)), vf_set(rstd));
        const vf b = beta ? ve_load_first(beta + c, lanes) : vf_set(0);
        ve_store_first(y + c, vf_fma(n, ve_load_first(gamma + c, lanes), b), lanes);
    }
}

static float rstd_of(double squares, int64_t width, float epsilon) {
    return (float)(1.0 / sqrt(squares / (double)width + epsilon));
}

status_t VECTOR(layernorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *mean, float *rstd,
                                   const element_t *x, const element_t *branch, const element_t *gamma,
                                   const element_t *beta, int64_t rows, int64_t width, float epsilon, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        const double sum = row_sum(AT_OR_NULL(r, at), AT(x, at), AT_OR_NULL(branch, at), width);
        const element *normed = branch ? AT(r, at) : AT(x, at);
        mean[row] = (float)(sum / (double)width);
        rstd[row] = rstd_of((double)row_spread(normed, mean[row], width), width, epsilon);
        row_norm(AT(y, at), normed, mean[row], rstd[row], gamma, beta, width);
    }
    return ST_OK;
}

status_t VECTOR(rmsnorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *rstd, const element_t *x,
                                 const element_t *branch, const element_t *gamma, int64_t rows, int64_t width,
                                 float epsilon, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        const float squares = row_squares(AT_OR_NULL(r, at), AT(x, at), AT_OR_NULL(branch, at), width);
        rstd[row] = rstd_of((double)squares, width, epsilon);
        row_norm(AT(y, at), branch ? AT(r, at) : AT(x, at), 0, rstd[row], gamma, NULL, width);
    }
    return ST_OK;
}

struct row {
    const element *dy, *addend, *x, *gamma;
    float mean, rstd;
};

/* With n = (x - mean) rstd and h = dy gamma: computes the row's sums of h and h n, and adds the row to dgamma and dbeta
 * (dbeta NULL for RMS norm). */
static void row_sums(const struct row *a, float *dgamma, float *dbeta, int64_t width, float *sum_h, float *sum_hn) {
    vf h_all = vf_set(0), hn_all = vf_set(0);
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        const vf dy = ve_load_first(a->dy + c, lanes), h = vf_mul(dy, ve_load_first(a->gamma + c, lanes));
        const vf n = vf_mul(vf_sub(ve_load_first(a->x + c, lanes), vf_set(a->mean)), vf_set(a->rstd));
        h_all = vf_add(h_all, h);
        hn_all = vf_fma(h, n, hn_all);
        vf_store_first(dgamma + c, vf_fma(dy, n, vf_load_first(dgamma + c, lanes)), lanes);
        if (dbeta)
            vf_store_first(dbeta + c, vf_add(dy, vf_load_first(dbeta + c, lanes)), lanes);
    }
    *sum_h = vf_sum(h_all);
    *sum_hn = vf_sum(hn_all);
}

/* dx = rstd (h - avg(h) - n avg(h n)) + addend. */
static void row_gradient(element *dx, const struct row *a, int64_t width, float avg_h, float avg_hn) {
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        const vf h = vf_mul(ve_load_first(a->dy + c, lanes), ve_load_first(a->gamma + c, lanes));
        const vf n = vf_mul(vf_sub(ve_load_first(a->x + c, lanes), vf_set(a->mean)), vf_set(a->rstd));
        const vf centered = vf_fnma(n, vf_set(avg_hn), vf_sub(h, vf_set(avg_h)));
        const vf added = a->addend ? ve_load_first(a->addend + c, lanes) : vf_set(0);
        ve_store_first(dx + c, vf_fma(centered, vf_set(a->rstd), added), lanes);
    }
}

status_t VECTOR(layernorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, float *dbeta,
                                    const element_t *dy, const element_t *addend, const element_t *x, const float *mean,
                                    const float *rstd, const element_t *gamma, int64_t rows, int64_t width,
                                    bool accumulate, void *workspace, struct err *e) {
    (void)e;
    const int64_t pieces = piece_count(rows), sums = dbeta ? 2 : 1;
    float *partial = workspace; /* (pieces, sums, width): dgamma, dbeta */
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        float *part = partial + i * sums * width, sum_h, sum_hn;
        for (int64_t c = 0; c < sums * width; c++)
            part[c] = 0;
        for (int64_t row = piece_begin(rows, i); row < piece_begin(rows, i + 1); row++) {
            const int64_t at = row * width;
            const struct row a = { AT(dy, at),   AT_OR_NULL(addend, at), AT(x, at),
                                   AT(gamma, 0), mean ? mean[row] : 0,   rstd[row] };
            row_sums(&a, part, dbeta ? part + width : NULL, width, &sum_h, &sum_hn);
            row_gradient(AT(dx, at), &a, width, mean ? sum_h / (float)width : 0, sum_hn / (float)width);
        }
    }
    add_pieces(dgamma, partial, pieces, sums * width, width, accumulate);
    if (dbeta)
        add_pieces(dbeta, partial + width, pieces, sums * width, width, accumulate);
    return ST_OK;
}

status_t VECTOR(rmsnorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, const element_t *dy,
                                  const element_t *addend, const element_t *x, const float *rstd,
                                  const element_t *gamma, int64_t rows, int64_t width, bool accumulate, void *workspace,
                                  struct err *e) {
    return VECTOR(layernorm_backward)(k, dx, dgamma, NULL, dy, addend, x, NULL, rstd, gamma, rows, width, accumulate,
                                      workspace, e);
}
