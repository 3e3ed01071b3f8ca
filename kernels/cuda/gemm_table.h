/* Which of cuBLASLt's algorithms computed each matrix product of a run, and which of cuDNN's engines each convolution
 * where they were timed: text that a run's record keeps, so that a resume computes with the same ones, to the bit.
 *
 *     trainyard products 1
 *     on NVIDIA H200, 132 processors, cuBLASLt 130100, fast
 *     bf16 65536 3072 768 768 3072 3072 16 bias+gelu <128 hexadecimal digits> 33554432
 *     convolution-weight bf16 256 56 56 64 64 3 1 1 91900 462422272 5:2=1,13=0
 *
 * Line 2 says what chose: `fast` where algorithms were timed. A product's numbers are m n k, lda ldb ldc, alignment;
 * then what else belongs to it ("-": nothing), cuBLASLt's opaque algorithm and its workspace in bytes. A convolution's
 * are its dims in the order of struct convolution_dims, cuDNN's version and the bytes that an engine could have; then
 * the engine, by its number and its knobs. Plain C, without CUDA: the parser reads what others wrote. One thread at a
 * time. */
#ifndef KERNELS_CUDA_GEMM_TABLE_H
#define KERNELS_CUDA_GEMM_TABLE_H

#include "kernels/kernels.h"

enum { GEMM_ALGORITHM_WORDS = 8, GEMM_DEVICE_BYTES = 128, GEMM_CHOICES_MOST = 4096 };
enum { ENGINE_DIMS = 8, ENGINE_NAME_BYTES = 192, ENGINE_CHOICES_MOST = 1024 };

/* C (m, n) = A (m, k) B (k, n), row-major; lda, ldb, ldc from a row to the next, as they lie in memory. */
enum gemm_flag {
    GEMM_A_TRANSPOSED = 1, /* A lies as (k, m) */
    GEMM_B_TRANSPOSED = 2, /* B lies as (n, k) */
    GEMM_ACCUMULATE = 4,   /* C += */
    GEMM_C_FP32 = 8,       /* C is fp32 in every precision */
    GEMM_BIAS = 16,        /* + bias (n), to each row */
    GEMM_GELU = 32,        /* C = gelu of it, and what goes into gelu is kept */
};
struct gemm_product {
    enum kernels_precision precision;
    int64_t m, n, k, lda, ldb, ldc;
    int64_t alignment; /* of all pointers, in bytes: 2 .. 16 */
    unsigned flags;    /* of enum gemm_flag */
};

struct gemm_choice {
    struct gemm_product product;
    uint64_t algorithm[GEMM_ALGORITHM_WORDS];
    uint64_t workspace; /* bytes */
};

/* Which gradient, or none: the names of the lines in their order. */
enum engine_pass { ENGINE_FORWARD, ENGINE_INPUT, ENGINE_WEIGHT, ENGINE_PASSES };
struct engine_choice {
    enum engine_pass pass;
    enum kernels_precision precision;
    int64_t dims[ENGINE_DIMS];
    int64_t version;              /* cuDNN's: another one's engines are others */
    int64_t room;                 /* bytes that it was chosen for: another build may give others */
    char name[ENGINE_NAME_BYTES]; /* "5:2=1,13=0" */
};

struct gemm_table {
    char device[GEMM_DEVICE_BYTES]; /* "NVIDIA H200, 132 processors, cuBLASLt 130100, fast" */
    struct gemm_choice *choices;    /* in the order in which they were made */
    size_t n, room;
    struct engine_choice *engines;
    size_t n_engines, engines_room;
};

void gemm_table_done(struct gemm_table *t);
static inline void gemm_table_donep(struct gemm_table *t) { gemm_table_done(t); }

bool gemm_product_equal(const struct gemm_product *a, const struct gemm_product *b);
/* NULL: none yet. */
const struct gemm_choice *gemm_table_find(const struct gemm_table *t, const struct gemm_product *p);
/* Adds a choice for a product that has none. RESOURCE_EXHAUSTED, also beyond GEMM_CHOICES_MOST. */
MUST_CHECK status_t gemm_table_add(struct gemm_table *t, const struct gemm_choice *choice, struct err *e);

/* The choice for this pass, precision, dims, version and room; NULL: none yet. */
const struct engine_choice *gemm_table_engine(const struct gemm_table *t, const struct engine_choice *like);
/* As gemm_table_add; at most ENGINE_CHOICES_MOST. */
MUST_CHECK status_t gemm_table_add_engine(struct gemm_table *t, const struct engine_choice *choice, struct err *e);

/* The text, NUL-terminated; the caller frees it. */
MUST_CHECK status_t gemm_table_write(const struct gemm_table *t, char **ret, struct err *e);
/* n bytes of text. INVALID_ARGUMENT with the line's number. */
MUST_CHECK status_t gemm_table_parse(const char *text, size_t n, struct gemm_table *ret, struct err *e);
/* Enters choices from n bytes of text: one or more tables, one behind another. Those of another device are left out, as
 * are those that t has a choice of already: the first counts. Errors: as above, lines counted in each table. */
MUST_CHECK status_t gemm_table_take(struct gemm_table *t, const char *text, size_t n, struct err *e);

#endif
