#include "kernels/cpu/plain/ops.h"

#include "kernels/cpu/mask.h"

#include <assert.h>
#include <math.h>

status_t plain_add(const struct kernels *k, float *y, const float *a, const float *b, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
    return ST_OK;
}

status_t plain_accumulate(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e) {
    return plain_add(k, a, a, b, n, e);
}

status_t plain_scale(const struct kernels *k, float *a, float factor, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        a[i] *= factor;
    return ST_OK;
}

status_t plain_fill(const struct kernels *k, float *a, float value, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        a[i] = value;
    return ST_OK;
}

status_t plain_tree_add(const struct kernels *k, float *const part[], int count, int64_t n, struct err *e) {
    assert(count > 0 && (count & (count - 1)) == 0);
    for (int step = 1; step < count; step *= 2)
        for (int i = 0; i < count; i += 2 * step)
            TRY(k->accumulate(k, part[i], part[i + step], n, e));
    return ST_OK;
}

static const float GELU_SCALE = 0.79788456080286536f, GELU_CUBE = 0.044715f; /* sqrt(2/pi) */

/* 1/2 (1 + tanh(u)) = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): without the sum that cancels where u < 0. */
static float gelu_sigmoid(float x) { return 1.0f / (1.0f + expf(-2.0f * GELU_SCALE * (x + GELU_CUBE * x * x * x))); }

status_t plain_gelu_forward(const struct kernels *k, float *y, const float *x, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * gelu_sigmoid(x[i]);
    return ST_OK;
}

static float gelu_slope(float x) {
    const float s = gelu_sigmoid(x), slope = 2.0f * GELU_SCALE * (1.0f + 3.0f * GELU_CUBE * x * x);
    return s + x * s * (1.0f - s) * slope;
}

status_t plain_gelu_backward(const struct kernels *k, float *dx, const float *dy, const float *x, int64_t n,
                             struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] * gelu_slope(x[i]);
    return ST_OK;
}

status_t plain_dropout(const struct kernels *k, float *y, const float *x, int64_t samples, int64_t n,
                       const struct dropout *dropout, struct err *e) {
    (void)e;
    struct mask mask = mask_of(dropout);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t s = 0; s < samples; s++)
        for (int64_t i = 0; i < n; i++)
            y[s * n + i] = x[s * n + i] * mask_factor(&mask, dropout->first_sample + s, i);
    return ST_OK;
}

/* The form of torch.optim.AdamW: decay first, then m / (sqrt(v) + epsilon) with both moments bias-corrected. */
status_t plain_adamw(const struct kernels *k, float *p, float *m, float *v, const float *g, int64_t n,
                     const struct adamw *o, struct err *e) {
    (void)e;
    const float beta1 = (float)o->beta1, rest1 = (float)(1.0 - o->beta1);
    const float beta2 = (float)o->beta2, rest2 = (float)(1.0 - o->beta2), epsilon = (float)o->epsilon;
    const float step = (float)(o->learning_rate / (1.0 - pow(o->beta1, (double)o->updates)));
    const float correction = (float)sqrt(1.0 - pow(o->beta2, (double)o->updates));
    const float keep = (float)(1.0 - o->learning_rate * o->weight_decay);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * o->gradient_scale;
        m[i] = beta1 * m[i] + rest1 * gi;
        v[i] = beta2 * v[i] + rest2 * gi * gi;
        p[i] = keep * p[i] - step * m[i] / (sqrtf(v[i]) / correction + epsilon);
    }
    return ST_OK;
}

status_t plain_sum_squares(const struct kernels *k, double *sums, const float *a, int64_t n, struct err *e) {
    (void)e;
    const int64_t chunks = (n + KERNELS_CHUNK - 1) / KERNELS_CHUNK;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t c = 0; c < chunks; c++) {
        double sum = 0;
        for (int64_t i = c * KERNELS_CHUNK; i < n && i < (c + 1) * KERNELS_CHUNK; i++)
            sum += (double)a[i] * a[i];
        sums[c] = sum;
    }
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
