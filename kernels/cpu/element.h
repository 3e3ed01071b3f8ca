/* The element that a file of plain/ and vector/ is compiled for: kernels.h says void, here it has a type. Each of those
 * files is compiled once for each precision (kernels/CMakeLists.txt); ELEMENT_NAME(f) tells its functions apart.
 *
 * Rounding is to nearest, ties to even, of NaNs too: a NaN stays a NaN, what is too large becomes an infinity. */
#ifndef KERNELS_CPU_ELEMENT_H
#define KERNELS_CPU_ELEMENT_H

#include "kernels/kernels.h"

#include <string.h>

static inline uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* bf16: the upper half of an fp32. */
static inline float float_of_bf16(uint16_t x) { return float_of_bits((uint32_t)x << 16); }

static inline uint16_t bf16_of_float(float x) {
    const uint32_t bits = float_bits(x);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* fp16: IEEE 754's binary16. Shifted to fp32's place its exponent is 112 too small, a subnormal's too. */
static inline float float_of_fp16(uint16_t x) {
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff;
    if (rest >= 0x7c00)
        return float_of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    return float_of_bits(sign | float_bits(float_of_bits(rest << 13) * 0x1p112f));
}

static inline uint16_t fp16_of_float(float x) {
    const uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= float_bits(65520.0f))
        return (uint16_t)(sign | 0x7c00);
    if (rest < float_bits(0x1p-14f)) /* in [0.5, 1) an fp32 counts in steps of 2^-24, fp16's smallest */
        return (uint16_t)(sign | (float_bits(float_of_bits(rest) + 0.5f) - float_bits(0.5f)));
    return (uint16_t)(sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13);
}

#if defined ELEMENT_FP32
#define ELEMENT_NAME(name) fp32_##name
typedef float element;
static inline float float_of(element x) { return x; }
static inline element element_of(float x) { return x; }
#elif defined ELEMENT_BF16
#define ELEMENT_NAME(name) bf16_##name
typedef uint16_t element;
static inline float float_of(element x) { return float_of_bf16(x); }
static inline element element_of(float x) { return bf16_of_float(x); }
#elif defined ELEMENT_FP16
#define ELEMENT_NAME(name) fp16_##name
typedef uint16_t element;
static inline float float_of(element x) { return float_of_fp16(x); }
static inline element element_of(float x) { return fp16_of_float(x); }
#endif

#if defined ELEMENT_NAME
/* The i-th element of a tensor, as const as the tensor is; AT_OR_NULL for a tensor that may be missing. */
#define AT(p, i)         (_Generic((p), const void * : (const element *)(p), void * : (element *)(p)) + (i))
#define AT_OR_NULL(p, i) ((p) ? AT(p, i) : NULL)
#endif

#endif
