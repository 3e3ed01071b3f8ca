/* Converts elements to and from vectors of fp32. See vector.h for `lanes` and cpu/element.h for the rounding. */
#ifndef KERNELS_CPU_VECTOR_ELEMENTS_H
#define KERNELS_CPU_VECTOR_ELEMENTS_H

#include "kernels/cpu/vector/vector.h"

#if defined ELEMENT_FP32

static inline vf ve_load(const element *p) { return vf_load(p); }
static inline vf ve_load_first(const element *p, int64_t lanes) { return vf_load_first(p, lanes); }
static inline void ve_store_first(element *p, vf a, int64_t lanes) { vf_store_first(p, a, lanes); }
/* Stores, and returns the values that a load would read. */
static inline vf ve_store_back(element *p, vf a, int64_t lanes) {
    vf_store_first(p, a, lanes);
    return a;
}

#else

/* LANES numbers of 16 bits. */
#ifdef __AVX512F__

typedef __m256i vh;
static inline vh vh_load(const element *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline void vh_store(element *p, vh a) { _mm256_storeu_si256((__m256i *)(void *)p, a); }
static inline vh vh_load_tail(const element *p, int64_t lanes) { return _mm256_maskz_loadu_epi16(vf_first(lanes), p); }
static inline void vh_store_tail(element *p, vh a, int64_t lanes) { _mm256_mask_storeu_epi16(p, vf_first(lanes), a); }

#ifdef ELEMENT_BF16
static inline vf vh_to_fp32(vh a) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(a), 16)); }
#ifdef __AVX512BF16__ /* its instruction takes subnormal numbers as 0 */
static inline vh vh_round(vf a) { return (vh)_mm512_cvtneps_pbh(a); }
#else
static inline vh vh_round(vf a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const __m512i half = _mm512_mask_blend_epi32(odd, _mm512_set1_epi32(0x7fff), _mm512_set1_epi32(0x8000));
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    const __m512i r = _mm512_mask_or_epi32(_mm512_add_epi32(bits, half), nan, bits, _mm512_set1_epi32(0x400000));
    const __m512i upper = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 31, 29, 27, 25, 23, 21, 19,
                                           17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper, r));
}
#endif
#else
static inline vf vh_to_fp32(vh a) { return _mm512_cvtph_ps(a); }
static inline vh vh_round(vf a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#endif

#else

typedef __m128i vh;
static inline vh vh_load(const element *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static inline void vh_store(element *p, vh a) { _mm_storeu_si128((__m128i *)(void *)p, a); }
/* AVX2 has no masks for 16-bit elements, so that tails are copied through memory. */
static inline vh vh_load_tail(const element *p, int64_t lanes) {
    element first[LANES] = { 0 };
    for (int64_t i = 0; i < lanes; i++)
        first[i] = p[i];
    return vh_load(first);
}
static inline void vh_store_tail(element *p, vh a, int64_t lanes) {
    element first[LANES];
    vh_store(first, a);
    for (int64_t i = 0; i < lanes; i++)
        p[i] = first[i];
}

#ifdef ELEMENT_BF16
static inline vf vh_to_fp32(vh a) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(a), 16)); }
static inline vh vh_round(vf a) {
    const __m256i bits = _mm256_castps_si256(a), upper = _mm256_srli_epi32(bits, 16);
    const __m256i even = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i r = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
#else
static inline vf vh_to_fp32(vh a) { return _mm256_cvtph_ps(a); }
static inline vh vh_round(vf a) { return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT); }
#endif

#endif

static inline vh vh_load_first(const element *p, int64_t lanes) {
    return lanes == LANES ? vh_load(p) : vh_load_tail(p, lanes);
}
static inline void vh_store_first(element *p, vh a, int64_t lanes) {
    if (lanes == LANES)
        vh_store(p, a);
    else
        vh_store_tail(p, a, lanes);
}

static inline vf ve_load(const element *p) { return vh_to_fp32(vh_load(p)); }
static inline vf ve_load_first(const element *p, int64_t lanes) { return vh_to_fp32(vh_load_first(p, lanes)); }
static inline void ve_store_first(element *p, vf a, int64_t lanes) { vh_store_first(p, vh_round(a), lanes); }
static inline vf ve_store_back(element *p, vf a, int64_t lanes) {
    const vh h = vh_round(a);
    vh_store_first(p, h, lanes);
    return vh_to_fp32(h);
}

#endif

#endif
