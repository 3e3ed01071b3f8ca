/* The product of two small matrices (a tile), with the operands in the L1 cache.
 *
 * C is divided into strips of COLUMNS vectors, and a strip into blocks of ROWS rows. A block of C stays in registers
 * while k runs from beginning to end: each step loads one row of B, and adds each element of a column of A times that
 * row. So every element of C is summed in the order of k, for blocks of every size.
 *
 * The block sizes are compile-time constants, because block() is inlined for each size. Whole blocks use unmasked
 * loads; the last strip masks the lanes beyond the end of a row.
 *
 * tile_transpose transposes blocks of 8 x 8 in registers, and the rest element by element. */
#include "kernels/cpu/vector/tile.h"

#include "kernels/cpu/vector/vector.h"

/* TILE_PAIRS: each 32 bits of A and B are two bf16, neighbours along k, and k counts pairs. One instruction multiplies
 * and adds both. C is fp32 in this build too. */
#ifdef TILE_PAIRS
#define TILE_PRODUCT tile_product_pairs
#define TILE_SUM     tile_sum_pairs
static inline vf multiply_add(vf a, vf b, vf c) {
    return _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}
#else
#define TILE_PRODUCT tile_product
#define TILE_SUM     tile_sum
static inline vf multiply_add(vf a, vf b, vf c) { return vf_fma(a, b, c); }
#endif

/* A block of ROWS x COLUMNS vectors of C stays in registers while k runs: it takes 24 of AVX-512's 32 registers, or 12
 * of AVX2's 16. The other registers hold a row of B and one element of A. */
#ifdef __AVX512F__
enum { ROWS = 6, COLUMNS = 4 };
#else
enum { ROWS = 6, COLUMNS = 2 };
#endif

#define INLINE static inline __attribute__((always_inline))

struct operands {
    float *c;
    const float *a, *b;
    int64_t ldc, a_row, a_column, ldb, k, last_lanes; /* last_lanes: lanes of the last vector of a block */
    bool accumulate;
    struct tile_runs runs;
};

/* rows, columns and whole are constants in each inlined copy, so that the block stays in registers and the compiler
 * removes the conditions. */
INLINE void block(const struct operands *o, const int rows, const int columns, const bool whole) {
    vf sum[ROWS][COLUMNS];
#define LANES_OF(j) (j == columns - 1 ? o->last_lanes : LANES)
#define LOAD(p, j)  (whole ? vf_load(p) : vf_load_first(p, LANES_OF(j)))
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < columns; j++)
            sum[i][j] = o->accumulate ? LOAD(o->c + i * o->ldc + j * LANES, j) : vf_set(0);
    for (int64_t r = 0; r < o->runs.n; r++) {
        const float *a = o->a + r * o->runs.a, *b = o->b + r * o->runs.b;
        for (int64_t l = 0; l < o->k; l++, a += o->a_column, b += o->ldb) {
            vf row[COLUMNS];
#pragma GCC unroll 8
            for (int j = 0; j < columns; j++)
                row[j] = LOAD(b + j * LANES, j);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) {
                const vf x = vf_set(a[i * o->a_row]);
#pragma GCC unroll 8
                for (int j = 0; j < columns; j++)
                    sum[i][j] = multiply_add(x, row[j], sum[i][j]);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < columns; j++) {
            if (whole)
                vf_store(o->c + i * o->ldc + j * LANES, sum[i][j]);
            else
                vf_store_first(o->c + i * o->ldc + j * LANES, sum[i][j], LANES_OF(j));
        }
#undef LOAD
#undef LANES_OF
}

/* Computes all m rows of C in one strip of `columns` vectors. */
INLINE void strip(struct operands o, int64_t m, const int columns, const bool whole) {
    for (; m >= ROWS; m -= ROWS) {
        block(&o, ROWS, columns, whole);
        o.a += ROWS * o.a_row;
        o.c += ROWS * o.ldc;
    }
    switch (m) {
    case 5: block(&o, 5, columns, whole); break;
    case 4: block(&o, 4, columns, whole); break;
    case 3: block(&o, 3, columns, whole); break;
    case 2: block(&o, 2, columns, whole); break;
    case 1: block(&o, 1, columns, whole); break;
    default: break;
    }
}

INLINE void product(struct operands o, int64_t m, int64_t n) {
    for (; n >= COLUMNS * LANES; n -= COLUMNS * LANES) {
        strip(o, m, COLUMNS, true);
        o.b += COLUMNS * LANES;
        o.c += COLUMNS * LANES;
    }
    o.last_lanes = n % LANES ? n % LANES : LANES;
    switch ((n + LANES - 1) / LANES) {
#if defined __AVX512F__
    case 4: strip(o, m, 4, false); break;
    case 3: strip(o, m, 3, false); break;
#endif
    case 2: strip(o, m, 2, false); break;
    case 1: strip(o, m, 1, false); break;
    default: break;
    }
}

void VECTOR_ISA(TILE_PRODUCT)(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_column, const float *b,
                              int64_t ldb, int64_t m, int64_t n, int64_t k, bool accumulate) {
    product((struct operands){ c, a, b, ldc, a_row, a_column, ldb, k, LANES, accumulate, { 1, 0, 0 } }, m, n);
}

void VECTOR_ISA(TILE_SUM)(float *c, int64_t ldc, const float *a, int64_t a_column, const float *b, int64_t ldb,
                          int64_t m, int64_t n, int64_t k, const struct tile_runs *runs) {
    product((struct operands){ c, a, b, ldc, 1, a_column, ldb, k, LANES, true, *runs }, m, n);
}

#ifndef TILE_PAIRS

/* Transposes 8 x 8 floats as pairs of 4 x 4 transposes in 128-bit lanes. */
static void transpose8(float *to, int64_t to_ld, const float *from, int64_t from_ld) {
    __m256 r[8], s[8];
    for (int i = 0; i < 4; i++) {
        const float *p = from + i * from_ld;
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 4 * from_ld), 1);
        r[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4)), _mm_loadu_ps(p + 4 * from_ld + 4),
                                        1);
    }
    for (int i = 0; i < 8; i += 4) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
        s[i + 2] = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
        s[i + 3] = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        _mm256_storeu_ps(to + i * to_ld, _mm256_shuffle_ps(s[i], s[i + 2], 0x44));
        _mm256_storeu_ps(to + (i + 1) * to_ld, _mm256_shuffle_ps(s[i], s[i + 2], 0xee));
        _mm256_storeu_ps(to + (i + 2) * to_ld, _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44));
        _mm256_storeu_ps(to + (i + 3) * to_ld, _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee));
    }
}

void VECTOR_ISA(tile_transpose)(float *to, int64_t to_ld, const float *from, int64_t from_ld, int64_t rows,
                                int64_t columns) {
    const int64_t rows8 = rows / 8 * 8, columns8 = columns / 8 * 8;
    for (int64_t i = 0; i < rows8; i += 8)
        for (int64_t j = 0; j < columns8; j += 8)
            transpose8(to + j * to_ld + i, to_ld, from + i * from_ld + j, from_ld);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i < rows8 ? columns8 : 0; j < columns; j++)
            to[j * to_ld + i] = from[i * from_ld + j];
}

#endif
