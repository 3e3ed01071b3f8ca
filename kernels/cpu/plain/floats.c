/* Ops on fp32 in every precision: gradients of parameters and optimizer states. */
#include "kernels/cpu/plain/ops.h"
#include "kernels/step_decision.h"

#include <math.h>

status_t plain_accumulate(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        a[i] += b[i];
    return ST_OK;
}

status_t plain_exchange(const struct kernels *k, float *a, float *b, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
    return ST_OK;
}

status_t plain_fill(const struct kernels *k, float *a, float value, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        a[i] = value;
    return ST_OK;
}

status_t plain_sum_squares(const struct kernels *k, const struct norm_span *spans, int n_spans, struct err *e) {
    (void)e;
    for (const struct norm_span *s = spans; s < spans + n_spans; s++) {
        const int64_t chunks = (s->n + KERNELS_CHUNK - 1) / KERNELS_CHUNK;
#pragma omp parallel for num_threads(k->threads) schedule(static)
        for (int64_t c = 0; c < chunks; c++) {
            double sum = 0;
            for (int64_t i = c * KERNELS_CHUNK; i < s->n && i < (c + 1) * KERNELS_CHUNK; i++)
                sum += (double)s->a[i] * s->a[i];
            s->sums[c] = sum;
        }
    }
    return ST_OK;
}

status_t plain_sum(const struct kernels *k, double *ret, const float *a, int64_t n, struct err *e) {
    (void)k, (void)e;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i];
    *ret = sum;
    return ST_OK;
}

status_t plain_sum_rows(const struct kernels *k, double *ret, const float *a, int64_t rows, int64_t n, struct err *e) {
    for (int64_t r = 0; r < rows; r++)
        TRY(plain_sum(k, &ret[r], a + r * n, n, e));
    return ST_OK;
}

status_t plain_decide(const struct kernels *k, struct decision *decision, const double *losses, int64_t n_losses,
                      const double *sums, int64_t n_sums, const struct decision_rules *o, struct err *e) {
    (void)k, (void)e;
    double squares = 0;
    bool finite = true;
    for (int64_t i = 0; i < n_losses; i++)
        finite = finite && isfinite(losses[i]);
    for (int64_t i = 0; i < n_sums; i++)
        squares += sums[i];
    decide_step(decision, squares, finite, o);
    return ST_OK;
}

status_t plain_all_finite(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e) {
    (void)e;
    bool finite = true;
#pragma omp parallel for num_threads(k->threads) schedule(static) reduction(&& : finite)
    for (int64_t i = 0; i < n; i++)
        finite = finite && isfinite(a[i]);
    *ret = finite;
    return ST_OK;
}
