/* Ops that touch each element once: activations and their gradients, add, copy, conversions, the test for finite
 * numbers.
 *
 * Each op has a loop over one block or row: load a vector of elements as fp32, compute, round, store. The last vector
 * of a loop is masked. A second function divides the tensor into blocks of BLOCK elements, or into rows, for the
 * threads. The results of all elements are independent, so that the division does not change bits.
 *
 * GELU and sigmoid come from math.h. */
#include "kernels/cpu/vector/elementwise.h"

#include "kernels/cpu/vector/block.h"
#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/math.h"

static void gelu_block(element *y, const element *x, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        ve_store_first(y + i, vf_gelu(ve_load_first(x + i, lanes)), lanes);
    }
}

status_t VECTOR(gelu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        gelu_block(AT(y, i), AT(x, i), block_end(i, n) - i);
    return ST_OK;
}

static void gelu_backward_block(element *dx, const element *dy, const element *x, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf slope = vf_gelu_slope(ve_load_first(x + i, lanes));
        ve_store_first(dx + i, vf_mul(ve_load_first(dy + i, lanes), slope), lanes);
    }
}

status_t VECTOR(gelu_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                               int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        gelu_backward_block(AT(dx, i), AT(dy, i), AT(x, i), block_end(i, n) - i);
    return ST_OK;
}

static void gelu_erf_block(element *y, const element *x, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        ve_store_first(y + i, vf_gelu_erf(ve_load_first(x + i, lanes)), lanes);
    }
}

status_t VECTOR(gelu_erf_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        gelu_erf_block(AT(y, i), AT(x, i), block_end(i, n) - i);
    return ST_OK;
}

static void gelu_erf_backward_block(element *dx, const element *dy, const element *x, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf slope = vf_gelu_erf_slope(ve_load_first(x + i, lanes));
        ve_store_first(dx + i, vf_mul(ve_load_first(dy + i, lanes), slope), lanes);
    }
}

status_t VECTOR(gelu_erf_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                                   int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        gelu_erf_backward_block(AT(dx, i), AT(dy, i), AT(x, i), block_end(i, n) - i);
    return ST_OK;
}

static void swiglu_row(element *y, const element *gate, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf x = ve_load_first(gate + i, lanes), up = ve_load_first(gate + n + i, lanes);
        ve_store_first(y + i, vf_mul(vf_mul(x, vf_sigmoid(x)), up), lanes);
    }
}

status_t VECTOR(swiglu_forward)(const struct kernels *k, element_t *y, const element_t *gate_up, int64_t rows,
                                int64_t width, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        swiglu_row(AT(y, row * width), AT(gate_up, 2 * row * width), width);
    return ST_OK;
}

/* silu' = s (1 + x (1 - s)), s = sigmoid(x). */
static void swiglu_backward_row(element *d_gate, const element *dy, const element *gate, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf x = ve_load_first(gate + i, lanes), up = ve_load_first(gate + n + i, lanes);
        const vf d = ve_load_first(dy + i, lanes), s = vf_sigmoid(x), silu = vf_mul(x, s);
        const vf slope = vf_fma(silu, vf_sub(vf_set(1), s), s);
        ve_store_first(d_gate + i, vf_mul(vf_mul(d, up), slope), lanes);
        ve_store_first(d_gate + n + i, vf_mul(d, silu), lanes);
    }
}

status_t VECTOR(swiglu_backward)(const struct kernels *k, element_t *d_gate_up, const element_t *dy,
                                 const element_t *gate_up, int64_t rows, int64_t width, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        swiglu_backward_row(AT(d_gate_up, 2 * row * width), AT(dy, row * width), AT(gate_up, 2 * row * width), width);
    return ST_OK;
}

static void relu_block(element *y, const element *x, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf a = ve_load_first(x + i, lanes);
        ve_store_first(y + i, vf_zero_below(a, a, vf_set(0)), lanes);
    }
}

status_t VECTOR(relu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        relu_block(AT(y, i), AT(x, i), block_end(i, n) - i);
    return ST_OK;
}

static void relu_backward_block(element *dx, const element *dy, const element *y, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf d = vf_where_above_zero(ve_load_first(dy + i, lanes), ve_load_first(y + i, lanes));
        ve_store_first(dx + i, d, lanes);
    }
}

status_t VECTOR(relu_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *y,
                               int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        relu_backward_block(AT(dx, i), AT(dy, i), AT(y, i), block_end(i, n) - i);
    return ST_OK;
}

static void add_block(element *y, const element *a, const element *b, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        ve_store_first(y + i, vf_add(ve_load_first(a + i, lanes), ve_load_first(b + i, lanes)), lanes);
    }
}

status_t VECTOR(add)(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                     struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        add_block(AT(y, i), AT(a, i), AT(b, i), block_end(i, n) - i);
    return ST_OK;
}

status_t VECTOR(copy)(const struct kernels *k, element_t *to, const element_t *from, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        memcpy(AT(to, i), AT(from, i), (size_t)(block_end(i, n) - i) * sizeof(element));
    return ST_OK;
}

void VECTOR(convert_row)(element_t *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES)
        ve_store_first(AT(to, i), vf_load_first(from + i, lanes_at(i, n)), lanes_at(i, n));
}

status_t VECTOR(convert)(const struct kernels *k, element_t *to, const float *from, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        VECTOR(convert_row)(AT(to, i), from + i, block_end(i, n) - i);
    return ST_OK;
}

void VECTOR(convert_row_to_fp32)(float *to, const element_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES)
        vf_store_first(to + i, ve_load_first(AT(from, i), lanes_at(i, n)), lanes_at(i, n));
}

status_t VECTOR(convert_to_fp32)(const struct kernels *k, float *to, const element_t *from, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        VECTOR(convert_row_to_fp32)(to + i, AT(from, i), block_end(i, n) - i);
    return ST_OK;
}

static bool block_finite(const element *a, int64_t n) {
    bool odd = false;
    for (int64_t i = 0; i < n; i += LANES)
        odd |= vf_any_not_finite(ve_load_first(a + i, lanes_at(i, n)));
    return !odd;
}

status_t VECTOR(elements_finite)(const struct kernels *k, bool *ret, const element_t *a, int64_t n, struct err *e) {
    (void)e;
    bool finite = true;
#pragma omp parallel for num_threads(k->threads) schedule(static) reduction(&& : finite) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        finite = block_finite(AT(a, i), block_end(i, n) - i) && finite;
    *ret = finite;
    return ST_OK;
}
