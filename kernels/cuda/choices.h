/* What a run has chosen that its bits depend on: which of cuBLASLt's algorithms computes each matrix product and, where
 * they were timed, which of cuDNN's engines each convolution. As text it is what a run's record keeps, so that a resume
 * computes with the same ones, to the bit.
 *
 *     trainyard products 1
 *     on NVIDIA H200, 132 processors, cuBLASLt 130100, fast
 *     bf16 65536 3072 768 768 3072 3072 16 bias+gelu <128 hexadecimal digits> 33554432
 *     convolution-weight bf16 256 56 56 64 64 3 1 1 91900 462422272 5:2=1,13=0
 *
 * Line 1 is older than engines, and stays: checkpoints have it. Line 2 says what chose: `fast` where algorithms were
 * timed. A product's numbers are m n k, lda ldb ldc, alignment; then what else belongs to it ("-": nothing), cuBLASLt's
 * opaque algorithm and its workspace in bytes. A convolution's are its dims in the order of struct convolution_dims,
 * cuDNN's version and the bytes that an engine could have; then the engine, by its number and its knobs. Plain C,
 * without CUDA: the parser reads what others wrote. One thread at a time. */
#ifndef KERNELS_CUDA_CHOICES_H
#define KERNELS_CUDA_CHOICES_H

#include "kernels/cuda/gemm.h"

enum { PRODUCT_ALGORITHM_WORDS = 8, ENGINE_DIMS = 8, ENGINE_NAME_BYTES = 192 };
enum { CHOICES_DEVICE_BYTES = 128, CHOICES_PRODUCTS_MOST = 4096, CHOICES_ENGINES_MOST = 1024 };

struct product_choice {
    struct gemm product;
    uint64_t algorithm[PRODUCT_ALGORITHM_WORDS];
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

struct choices {
    char device[CHOICES_DEVICE_BYTES]; /* "NVIDIA H200, 132 processors, cuBLASLt 130100, fast" */
    struct product_choice *products;   /* in the order in which they were made, as the engines are */
    struct engine_choice *engines;
    int n_products, n_engines;
};

void choices_done(struct choices *c);
static inline void choices_donep(struct choices *c) { choices_done(c); }

/* The choice for this product; NULL: none yet. */
const struct product_choice *choices_product(const struct choices *c, const struct gemm *product);
/* Adds a choice for a product that has none. RESOURCE_EXHAUSTED, also beyond CHOICES_PRODUCTS_MOST. */
MUST_CHECK status_t choices_add_product(struct choices *c, const struct product_choice *choice, struct err *e);

/* The choice for this pass, precision, dims, version and room; NULL: none yet. */
const struct engine_choice *choices_engine(const struct choices *c, const struct engine_choice *like);
/* As choices_add_product; at most CHOICES_ENGINES_MOST. */
MUST_CHECK status_t choices_add_engine(struct choices *c, const struct engine_choice *choice, struct err *e);

/* The text, NUL-terminated; the caller frees it. */
MUST_CHECK status_t choices_write(const struct choices *c, char **ret, struct err *e);
/* n bytes of text. INVALID_ARGUMENT with the line's number. */
MUST_CHECK status_t choices_parse(const char *text, size_t n, struct choices *ret, struct err *e);
/* Enters choices from n bytes of text: those of one or more tables, one behind another. What another device chose is
 * left out, as is what c has a choice of already: the first counts. Errors: as above, lines counted in each table. */
MUST_CHECK status_t choices_take(struct choices *c, const char *text, size_t n, struct err *e);

#endif
