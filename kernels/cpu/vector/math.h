/* exp, sigmoid and both forms of GELU of a vector.
 *
 * 2^(n + f), with n integral and |f| <= 1/2, is computed as 2^n times the Taylor polynomial of degree 7 of 2^f. The
 * remainder of the polynomial at the ends is 6e-9 of the value. Its even and odd terms are added in pairs, which
 * shortens the chain of dependent operations.
 *
 * exp(x) computes f = x log2(e) - n by two multiply-adds with log2(e) in two parts. The error is within 1.5 units in
 * the last place (tested). The result is +inf above 88.73, NaN for a NaN, and 0 below -87.33, where it would be
 * subnormal: processors compute subnormal numbers a hundred times slower, and a softmax or a sigmoid does not need
 * them. */
#ifndef KERNELS_CPU_VECTOR_MATH_H
#define KERNELS_CPU_VECTOR_MATH_H

#include "kernels/cpu/vector/vector.h"

static inline vf exp2_of_parts(vf n, vf f) {
    const vf square = vf_mul(f, f);
    const vf p1 = vf_fma(f, vf_set(0.693147181f), vf_set(1));
    const vf p3 = vf_fma(f, vf_set(0.0555041087f), vf_set(0.240226507f));
    const vf p5 = vf_fma(f, vf_set(0.00133335581f), vf_set(0.00961812911f));
    const vf p7 = vf_fma(f, vf_set(1.52527338e-5f), vf_set(0.000154035304f));
    return vf_scale2(vf_fma(vf_fma(vf_fma(p7, square, p5), square, p3), square, p1), n);
}

/* 2^x for x up to 127. */
static inline vf vf_exp2(vf x) {
    const vf n = vf_round(x);
    return vf_zero_below(exp2_of_parts(n, vf_sub(x, n)), x, vf_set(-126));
}

/* exp(x) for x up to 89. */
static inline vf exp_up_to_89(vf x) {
    const vf log2e = vf_set(1.44269502f), rest = vf_set(1.92596299e-8f), n = vf_round(vf_mul(x, log2e));
    const vf f = vf_fma(x, rest, vf_fma(x, log2e, vf_sub(vf_set(0), n)));
    return vf_zero_below(exp2_of_parts(n, f), x, vf_set(-87.33f));
}

/* min returns its second operand if one is a NaN, so that a NaN stays a NaN. */
static inline vf vf_exp(vf x) { return exp_up_to_89(vf_min(vf_set(89), x)); }

/* 1 / (1 + exp(-x)); the exponent is limited to 88 so that nothing overflows. */
static inline vf vf_sigmoid(vf x) {
    const vf z = exp_up_to_89(vf_min(vf_set(87), vf_sub(vf_set(0), x)));
    return vf_div(vf_set(1), vf_add(vf_set(1), z));
}

/* The tanh form of GELU is x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). It takes one exp2, and avoids the
 * cancellation in 1 + tanh(u). exp(-2u) = 2^(-2 log2(e) u); the exponent is limited so that nothing overflows. */
static inline vf gelu_exp(vf x) {
    const vf by = vf_fma(vf_mul(x, x), vf_set(-2.3022082f * 0.044715f), vf_set(-2.3022082f));
    return vf_exp2(vf_min(vf_set(125), vf_mul(x, by)));
}

static inline vf vf_gelu(vf x) { return vf_div(x, vf_add(vf_set(1), gelu_exp(x))); }

/* With s = sigmoid(2u) and z = exp(-2u): gelu' = s + x s (1 - s) 2u', and 1 - s = z s. */
static inline vf vf_gelu_slope(vf x) {
    const vf z = gelu_exp(x), s = vf_div(vf_set(1), vf_add(vf_set(1), z));
    const vf slope2 = vf_fma(vf_mul(x, x), vf_set(6 * 0.79788456080286536f * 0.044715f),
                             vf_set(2 * 0.79788456080286536f));
    return vf_fma(vf_mul(vf_mul(x, s), vf_mul(z, s)), slope2, s);
}

/* exp(-x^2 / 2) for |x| up to 20. The rounding of x^2 is known, because a multiply-add has none, and taken back. */
static inline vf normal_exp(vf x) {
    const vf square = vf_mul(x, x), rest = vf_fma(x, x, vf_sub(vf_set(0), square));
    const vf z = exp_up_to_89(vf_mul(vf_set(-0.5f), square));
    return vf_fnma(vf_mul(z, vf_set(0.5f)), rest, z);
}

/* The normal distribution function at -a, a >= 0: with t = 1 / (1 + 0.3 a / sqrt(2)) it is exp(-a^2 / 2) t p(t). The
 * polynomial p interpolates at the Chebyshev points of 0 <= a <= 14, with an error of 3e-8 of the value. z: exp(-a^2 /
 * 2). */
static inline vf normal_tail(vf a, vf z) {
    const vf t = vf_div(vf_set(1), vf_fma(a, vf_set(0.212132037f), vf_set(1)));
    vf p = vf_set(-0.0653854385f);
    p = vf_fma(p, t, vf_set(0.245967135f));
    p = vf_fma(p, t, vf_set(-0.263075829f));
    p = vf_fma(p, t, vf_set(0.28225711f));
    p = vf_fma(p, t, vf_set(-0.0534916818f));
    p = vf_fma(p, t, vf_set(0.110269584f));
    p = vf_fma(p, t, vf_set(0.0733980089f));
    p = vf_fma(p, t, vf_set(0.0854745582f));
    p = vf_fma(p, t, vf_set(0.0845865309f));
    return vf_mul(z, vf_mul(t, p));
}

/* GELU by erf is x times the distribution function, which is the tail below 0 and 1 minus the tail above. Beyond 20 the
 * tail is 0 in fp32. */
static inline vf normal_distribution(vf x, vf *density) {
    const vf a = vf_min(vf_set(20), vf_max(x, vf_sub(vf_set(0), x))), z = normal_exp(a), tail = normal_tail(a, z);
    *density = vf_mul(z, vf_set(0.398942280f));
    return vf_add(tail, vf_where_above_zero(vf_fnma(vf_set(2), tail, vf_set(1)), x));
}

static inline vf vf_gelu_erf(vf x) {
    vf density;
    return vf_mul(x, normal_distribution(x, &density));
}

static inline vf vf_gelu_erf_slope(vf x) {
    vf density;
    const vf distribution = normal_distribution(x, &density);
    return vf_fma(x, density, distribution);
}

#endif
