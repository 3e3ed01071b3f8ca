/* exp, sigmoid and GELU of a vector.
 *
 * exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2: r by two subtractions with ln 2 in two parts (Cody and
 * Waite), exp(r) by its Taylor polynomial of degree 7, whose remainder at the ends is 6e-9 of the value. Within 1.5
 * units in the last place (tested); +inf above 88.73; NaN stays NaN; 0 below -87.33, where the result would be
 * subnormal: processors compute those a hundred times slower, and a softmax or a sigmoid has no use for them. */
#ifndef KERNELS_CPU_VECTOR_MATH_H
#define KERNELS_CPU_VECTOR_MATH_H

#include "kernels/cpu/vector/vector.h"

static inline vf vf_exp(vf x) {
    const vf clamped = vf_min(vf_set(89.0f), vf_max(vf_set(-88.0f), x)); /* the second one is returned when it is NaN */
    const vf n = vf_round(vf_mul(clamped, vf_set(1.44269504088896341f)));
    vf r = vf_fnma(n, vf_set(0.693145751953125f), clamped);
    r = vf_fnma(n, vf_set(1.42860677e-6f), r);
    vf p = vf_set(1.0f / 5040);
    p = vf_fma(p, r, vf_set(1.0f / 720));
    p = vf_fma(p, r, vf_set(1.0f / 120));
    p = vf_fma(p, r, vf_set(1.0f / 24));
    p = vf_fma(p, r, vf_set(1.0f / 6));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    return vf_zero_below(vf_scale2(p, n), x, vf_set(-87.33f));
}

/* 1 / (1 + exp(-x)); the exponent is kept below 88 so that nothing overflows. */
static inline vf vf_sigmoid(vf x) {
    const vf z = vf_exp(vf_min(vf_set(87.0f), vf_sub(vf_set(0), x)));
    return vf_div(vf_set(1), vf_add(vf_set(1), z));
}

/* GELU's tanh form is x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): one exp, and no cancellation where
 * 1 + tanh(u) would lose its digits. The exponent is kept below 88 so that nothing overflows. */
static inline vf gelu_exp(vf x) {
    const vf square = vf_mul(x, x);
    const vf u2 = vf_mul(
        x, vf_fma(square, vf_set(-2 * 0.79788456080286536f * 0.044715f), vf_set(-2 * 0.79788456080286536f)));
    return vf_exp(vf_min(vf_set(87.0f), u2));
}

static inline vf vf_gelu(vf x) { return vf_div(x, vf_add(vf_set(1), gelu_exp(x))); }

/* With s = sigmoid(2u) and z = exp(-2u): gelu' = s + x s (1 - s) 2u', and 1 - s = z s. */
static inline vf vf_gelu_slope(vf x) {
    const vf z = gelu_exp(x), s = vf_div(vf_set(1), vf_add(vf_set(1), z));
    const vf slope2 = vf_fma(vf_mul(x, x), vf_set(6 * 0.79788456080286536f * 0.044715f),
                             vf_set(2 * 0.79788456080286536f));
    return vf_fma(vf_mul(vf_mul(x, s), vf_mul(z, s)), slope2, s);
}

#endif
