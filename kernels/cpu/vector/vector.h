/* A vector of floats, as wide as the instruction set for which this file is compiled: 16 (AVX-512) or 8 (AVX2). The
 * header has the few operations that the ops need, so that each op is written once.
 *
 * The tail of a row is loaded and stored under a mask: `lanes` is the number of first lanes that take part; the other
 * lanes read as 0 and are not written. Only the tail is masked: a loop of masked accesses runs at half the speed,
 * because processors do not prefetch for it. */
#ifndef KERNELS_CPU_VECTOR_VECTOR_H
#define KERNELS_CPU_VECTOR_VECTOR_H

#include "kernels/cpu/vector/ops.h"

#include <immintrin.h>

#ifdef __AVX512F__

enum { LANES = 16 };
typedef __m512 vf;
typedef __m512d vd; /* LANES / 2 doubles */
typedef __mmask16 vmask;

static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
/* Stores to an aligned address and bypasses the caches. Call vf_stream_end before another thread reads the data. */
static inline void vf_stream(float *p, vf a) { _mm512_stream_ps(p, a); }
static inline vmask vf_first(int64_t lanes) { return (vmask)((1u << lanes) - 1); }
static inline vf vf_load_masked(const float *p, vmask mask) { return _mm512_maskz_loadu_ps(mask, p); }
static inline void vf_store_masked(float *p, vf a, vmask mask) { _mm512_mask_storeu_ps(p, mask, a); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }   /* a b + c */
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a b */
static inline vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* a 2^n for an integral n in float's range of exponents and slightly beyond. */
static inline vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); }
/* a, but 0 where x < min. */
static inline vf vf_zero_below(vf a, vf x, vf min) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, min, _CMP_NLT_UQ), a);
}
/* The first lanes of a, then the other lanes of b. */
static inline vf vf_first_of(vf a, vf b, int64_t lanes) { return _mm512_mask_mov_ps(b, vf_first(lanes), a); }
/* a where x > 0, else 0. */
static inline vf vf_where_above_zero(vf a, vf x) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ), a);
}
static inline float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
static inline float vf_reduce_max(vf a) { return _mm512_reduce_max_ps(a); }
static inline vd vd_zero(void) { return _mm512_setzero_pd(); }
static inline void vd_store(double *p, vd a) { _mm512_storeu_pd(p, a); }
static inline vd vd_low(vf a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a)); }
static inline vd vd_high(vf a) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)); }
static inline vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
static inline vd vd_add(vd a, vd b) { return _mm512_add_pd(a, b); }
static inline double vd_sum(vd a) { return _mm512_reduce_add_pd(a); }
/* Returns true if any lane is a NaN or an infinity: all bits of its exponent are ones. */
static inline bool vf_any_not_finite(vf a) { return _mm512_fpclass_ps_mask(a, 0x99) != 0; }

#else

enum { LANES = 8 };
typedef __m256 vf;
typedef __m256d vd;
typedef __m256i vmask;

static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
static inline void vf_stream(float *p, vf a) { _mm256_stream_ps(p, a); }
static inline vmask vf_first(int64_t lanes) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load_masked(const float *p, vmask mask) { return _mm256_maskload_ps(p, mask); }
static inline void vf_store_masked(float *p, vf a, vmask mask) { _mm256_maskstore_ps(p, mask, a); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* Multiplies by two powers of two, so that neither leaves the range of exponents. */
static inline vf vf_scale2(vf a, vf n) {
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    __m256i bias = _mm256_set1_epi32(127);
    vf first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    vf second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(a, first), second);
}
static inline vf vf_zero_below(vf a, vf x, vf min) { return _mm256_and_ps(a, _mm256_cmp_ps(x, min, _CMP_NLT_UQ)); }
static inline vf vf_first_of(vf a, vf b, int64_t lanes) {
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(vf_first(lanes)));
}
static inline vf vf_where_above_zero(vf a, vf x) {
    return _mm256_and_ps(a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ));
}
static inline float vf_sum(vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float vf_reduce_max(vf a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
static inline vd vd_zero(void) { return _mm256_setzero_pd(); }
static inline void vd_store(double *p, vd a) { _mm256_storeu_pd(p, a); }
static inline vd vd_low(vf a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
static inline vd vd_high(vf a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
static inline vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
static inline vd vd_add(vd a, vd b) { return _mm256_add_pd(a, b); }
static inline double vd_sum(vd a) {
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}
static inline bool vf_any_not_finite(vf a) {
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    __m256i same = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(a), exponent), exponent);
    return _mm256_movemask_epi8(same) != 0;
}

#endif

static inline void vf_stream_end(void) { _mm_sfence(); }

static inline vf vf_load_first(const float *p, int64_t lanes) {
    return lanes == LANES ? vf_load(p) : vf_load_masked(p, vf_first(lanes));
}
static inline void vf_store_first(float *p, vf a, int64_t lanes) {
    if (lanes == LANES)
        vf_store(p, a);
    else
        vf_store_masked(p, a, vf_first(lanes));
}

/* The number of lanes of the vector at i that take part in a loop from 0 to n. */
static inline int64_t lanes_at(int64_t i, int64_t n) { return n - i < LANES ? n - i : LANES; }

#endif
