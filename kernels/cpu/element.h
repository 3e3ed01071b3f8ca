/* The element type for which a file of plain/ or vector/ is compiled. kernels.h uses void for it; here it has a type.
 * Each of these files is compiled once for each precision (kernels/CMakeLists.txt), and ELEMENT_NAME(f) gives each copy
 * of a function its own name.
 *
 * Rounding is to nearest, ties to even. A NaN stays a NaN, and a value that is too large becomes an infinity. */
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

/* fp16: binary16 of IEEE 754. After a shift to the position of an fp32, the exponent is 112 too small, also for
 * subnormal numbers. */
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
    if (rest < float_bits(0x1p-14f)) /* in [0.5, 1) the step of an fp32 is 2^-24, the smallest fp16 */
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
/* The i-th element of a tensor. The result is const if the tensor is const. AT_OR_NULL is for a tensor that may be
 * NULL. */
#define AT(p, i)         (_Generic((p), const void * : (const element *)(p), void * : (element *)(p)) + (i))
#define AT_OR_NULL(p, i) ((p) ? AT(p, i) : NULL)
#endif

#endif
