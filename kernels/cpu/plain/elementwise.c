#include "kernels/cpu/mask.h"
#include "kernels/cpu/plain/ops.h"

#include <math.h>

status_t PLAIN(add)(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                    struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        *AT(y, i) = element_of(float_of(*AT(a, i)) + float_of(*AT(b, i)));
    return ST_OK;
}

status_t PLAIN(copy)(const struct kernels *k, element_t *to, const element_t *from, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        *AT(to, i) = *AT(from, i);
    return ST_OK;
}

void PLAIN(convert_row)(element_t *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        *AT(to, i) = element_of(from[i]);
}

void PLAIN(convert_row_to_fp32)(float *to, const element_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = float_of(*AT(from, i));
}

status_t PLAIN(convert)(const struct kernels *k, element_t *to, const float *from, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        *AT(to, i) = element_of(from[i]);
    return ST_OK;
}

status_t PLAIN(convert_to_fp32)(const struct kernels *k, float *to, const element_t *from, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        to[i] = float_of(*AT(from, i));
    return ST_OK;
}

static const float GELU_SCALE = 0.79788456080286536f, GELU_CUBE = 0.044715f; /* sqrt(2/pi) */

/* 1/2 (1 + tanh(u)) = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). The sigmoid avoids the cancellation in 1 +
 * tanh(u) for u < 0. */
static float gelu_sigmoid(float x) { return 1.0f / (1.0f + expf(-2.0f * GELU_SCALE * (x + GELU_CUBE * x * x * x))); }

status_t PLAIN(gelu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float a = float_of(*AT(x, i));
        *AT(y, i) = element_of(a * gelu_sigmoid(a));
    }
    return ST_OK;
}

static float gelu_slope(float x) {
    const float s = gelu_sigmoid(x), slope = 2.0f * GELU_SCALE * (1.0f + 3.0f * GELU_CUBE * x * x);
    return s + x * s * (1.0f - s) * slope;
}

status_t PLAIN(gelu_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                              int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        *AT(dx, i) = element_of(float_of(*AT(dy, i)) * gelu_slope(float_of(*AT(x, i))));
    return ST_OK;
}

/* The normal distribution function. erfc keeps its digits where 1 + erf would lose them; its argument is double because
 * a rounding of it would show in the tail. */
static float normal_distribution(float x) { return (float)(0.5 * erfc(-(double)x * M_SQRT1_2)); }

status_t PLAIN(gelu_erf_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float a = float_of(*AT(x, i));
        *AT(y, i) = element_of(a * normal_distribution(a));
    }
    return ST_OK;
}

/* The distribution function, and x times its density exp(-x^2 / 2) / sqrt(2 pi). */
static float gelu_erf_slope(float x) {
    return normal_distribution(x) + x * (float)(0.39894228040143268 * exp(-0.5 * (double)x * (double)x));
}

status_t PLAIN(gelu_erf_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                                  int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        *AT(dx, i) = element_of(float_of(*AT(dy, i)) * gelu_erf_slope(float_of(*AT(x, i))));
    return ST_OK;
}

status_t PLAIN(swiglu_forward)(const struct kernels *k, element_t *y, const element_t *gate_up, int64_t rows,
                               int64_t width, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < width; c++) {
            const element *gate = AT(gate_up, 2 * row * width + c), *up = gate + width;
            const float g = float_of(*gate);
            *AT(y, row * width + c) = element_of(g / (1.0f + expf(-g)) * float_of(*up));
        }
    return ST_OK;
}

/* silu' = s (1 + x (1 - s)), s = sigmoid(x). */
status_t PLAIN(swiglu_backward)(const struct kernels *k, element_t *d_gate_up, const element_t *dy,
                                const element_t *gate_up, int64_t rows, int64_t width, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < width; c++) {
            const int64_t gate = 2 * row * width + c, up = gate + width;
            const float g = float_of(*AT(gate_up, gate)), u = float_of(*AT(gate_up, up));
            const float d = float_of(*AT(dy, row * width + c)), s = 1.0f / (1.0f + expf(-g));
            *AT(d_gate_up, gate) = element_of(d * u * s * (1.0f + g * (1.0f - s)));
            *AT(d_gate_up, up) = element_of(d * g * s);
        }
    return ST_OK;
}

status_t PLAIN(relu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        *AT(y, i) = float_of(*AT(x, i)) < 0 ? element_of(0) : *AT(x, i);
    return ST_OK;
}

status_t PLAIN(relu_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *y,
                              int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        *AT(dx, i) = float_of(*AT(y, i)) > 0 ? *AT(dy, i) : element_of(0);
    return ST_OK;
}

status_t PLAIN(dropout)(const struct kernels *k, element_t *y, const element_t *x, int64_t samples, int64_t n,
                        const struct dropout *dropout, struct err *e) {
    (void)e;
    struct mask mask = mask_of(dropout);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t s = 0; s < samples; s++)
        for (int64_t i = 0; i < n; i++) {
            const float factor = mask_factor(&mask, dropout->first_sample + s, i);
            *AT(y, s * n + i) = element_of(float_of(*AT(x, s * n + i)) * factor);
        }
    return ST_OK;
}

status_t PLAIN(elements_finite)(const struct kernels *k, bool *ret, const element_t *a, int64_t n, struct err *e) {
    (void)e;
    bool finite = true;
#pragma omp parallel for num_threads(k->threads) schedule(static) reduction(&& : finite)
    for (int64_t i = 0; i < n; i++)
        finite = finite && isfinite(float_of(*AT(a, i)));
    *ret = finite;
    return ST_OK;
}
