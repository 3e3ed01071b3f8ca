/* Vectors of LANES unsigned 32-bit integers, and Philox4x32-10 on them. */
#ifndef KERNELS_CPU_VECTOR_INTEGER_H
#define KERNELS_CPU_VECTOR_INTEGER_H

#include "kernels/cpu/vector/vector.h"

/* The order for vi_interleave: lane p of a vector of counters holds counter vi_order()[p]. Then the four numbers of
 * each counter are adjacent in the result, and counters are in ascending order. */
#ifdef __AVX512F__

typedef __m512i vi;
static inline vi vi_set(uint32_t x) { return _mm512_set1_epi32((int)x); }
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
static inline vi vi_order(void) { return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); }
/* The low and high halves of the products of all lanes with m. */
static inline void vi_multiply(vi a, uint32_t m, vi *low, vi *high) {
    const vi by = vi_set(m), even = _mm512_mul_epu32(a, by), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), by);
    *low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
    *high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}
static inline void vi_interleave(vi c[4]) {
    const vi ab_low = _mm512_unpacklo_epi32(c[0], c[1]), ab_high = _mm512_unpackhi_epi32(c[0], c[1]);
    const vi cd_low = _mm512_unpacklo_epi32(c[2], c[3]), cd_high = _mm512_unpackhi_epi32(c[2], c[3]);
    c[0] = _mm512_unpacklo_epi64(ab_low, cd_low);
    c[1] = _mm512_unpackhi_epi64(ab_low, cd_low);
    c[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
    c[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}
/* value where a >= min (unsigned), else 0. */
static inline vf vi_select_ge(vi a, vi min, vf value) {
    return _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(a, min), value);
}

#else

typedef __m256i vi;
static inline vi vi_set(uint32_t x) { return _mm256_set1_epi32((int)x); }
static inline vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
static inline vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
static inline vi vi_order(void) { return _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7); }
static inline void vi_multiply(vi a, uint32_t m, vi *low, vi *high) {
    const vi by = vi_set(m), even = _mm256_mul_epu32(a, by), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), by);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
static inline void vi_interleave(vi c[4]) {
    const vi ab_low = _mm256_unpacklo_epi32(c[0], c[1]), ab_high = _mm256_unpackhi_epi32(c[0], c[1]);
    const vi cd_low = _mm256_unpacklo_epi32(c[2], c[3]), cd_high = _mm256_unpackhi_epi32(c[2], c[3]);
    c[0] = _mm256_unpacklo_epi64(ab_low, cd_low);
    c[1] = _mm256_unpackhi_epi64(ab_low, cd_low);
    c[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
    c[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}
static inline vf vi_select_ge(vi a, vi min, vf value) {
    const vi reached = _mm256_cmpeq_epi32(_mm256_max_epu32(a, min), a);
    return _mm256_and_ps(_mm256_castsi256_ps(reached), value);
}

#endif

/* The 4 x LANES numbers of counters first .. first + LANES - 1 (their lowest words; the other words are the same for
 * all), in order: ret[0] has the first LANES numbers. */
static inline void vi_philox(uint32_t first, uint32_t word1, uint32_t word2, uint32_t word3, uint64_t key, vi ret[4]) {
    vi c0 = vi_add(vi_set(first), vi_order()), c1 = vi_set(word1), c2 = vi_set(word2), c3 = vi_set(word3);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        vi even_low, even_high, odd_low, odd_high;
        vi_multiply(c0, 0xD2511F53u, &even_low, &even_high);
        vi_multiply(c2, 0xCD9E8D57u, &odd_low, &odd_high);
        c0 = vi_xor(vi_xor(odd_high, c1), vi_set(k0));
        c1 = odd_low;
        c2 = vi_xor(vi_xor(even_high, c3), vi_set(k1));
        c3 = even_low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    ret[0] = c0;
    ret[1] = c1;
    ret[2] = c2;
    ret[3] = c3;
    vi_interleave(ret);
}

#endif
