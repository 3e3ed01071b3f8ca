/* The choices of a run on which its bits depend: the algorithm of cuBLASLt for each matrix product, and the engine
 * of cuDNN for each attention and each convolution. The run's record contains them as text, so that a resume
 * computes with the same ones, to the bit.
 *
 *     trainyard products 1
 *     on NVIDIA H200, 132 processors, cuBLASLt 130100, fast
 *     bf16 65536 3072 768 768 3072 3072 16 bias+gelu <128 hexadecimal digits> 33554432
 *     attention bf16 64 1024 12 12 64 1 0 0 91900 268435456 8:3=1
 *     convolution-weight bf16 256 56 56 64 64 3 1 1 91900 462422272 5:2=1,13=0
 *
 * Line 1 is older than the entries for engines and stays the same, because checkpoints contain it. Line 2 names the
 * device and library that chose; `fast` means that algorithms were timed. A product's numbers are m n k, lda ldb
 * ldc, alignment; then its flags ("-": none), cuBLASLt's opaque algorithm and its workspace in bytes. A
 * convolution's numbers are its dims in the order of struct convolution_dims. An attention's are batch, time, heads,
 * key heads, width of a head, causal, 0, 0. Both continue with cuDNN's version, the maximum workspace in bytes, and
 * the engine by its number and its knobs, or ENGINE_NONE.
 *
 * Plain C, without CUDA. The parser must handle any input, because the text may come from others. One thread at a
 * time. */
#ifndef KERNELS_CUDA_LIB_TUNING_CACHE_H
#define KERNELS_CUDA_LIB_TUNING_CACHE_H

#include "kernels/cuda/lib/gemm.h"

enum { PRODUCT_ALGORITHM_WORDS = 8, ENGINE_DIMS = 8, ENGINE_NAME_BYTES = 192 };
enum { TUNING_DEVICE_BYTES = 128, TUNING_MAX_PRODUCTS = 4096, TUNING_MAX_ENGINES = 1024 };

struct product_choice {
    struct gemm product;
    uint64_t algorithm[PRODUCT_ALGORITHM_WORDS];
    uint64_t workspace; /* bytes */
};

/* What an engine computes: for a convolution the result or the gradient of its input or weight, for attention the
 * result or all gradients. Each name is the first word of a line. */
enum engine_pass {
    ENGINE_FORWARD,
    ENGINE_INPUT,
    ENGINE_WEIGHT,
    ENGINE_ATTENTION,
    ENGINE_ATTENTION_BACKWARD,
    ENGINE_PASSES
};
/* Instead of an engine's name: cuDNN had none, and the kernels of kernels/cuda compute. */
#define ENGINE_NONE "-"
struct engine_choice {
    enum engine_pass pass;
    enum kernels_precision precision;
    int64_t dims[ENGINE_DIMS];
    int64_t version;              /* cuDNN's version: another version has other engines */
    int64_t workspace_bytes;      /* the limit at the time of the choice: another build may have another limit */
    char name[ENGINE_NAME_BYTES]; /* "5:2=1,13=0", or ENGINE_NONE */
};

struct tuning_cache {
    char device[TUNING_DEVICE_BYTES]; /* "NVIDIA H200, 132 processors, cuBLASLt 130100, fast" */
    struct product_choice *products;  /* in the order in which they were added, like the engines */
    struct engine_choice *engines;
    int n_products, n_engines;
};

void tuning_cache_done(struct tuning_cache *c);
static inline void tuning_cache_donep(struct tuning_cache *c) { tuning_cache_done(c); }

/* The choice for this product; NULL: none yet. */
const struct product_choice *tuning_cache_product(const struct tuning_cache *c, const struct gemm *product);
/* Adds a choice for a product that has none. RESOURCE_EXHAUSTED beyond TUNING_MAX_PRODUCTS. */
MUST_CHECK status_t tuning_cache_add_product(struct tuning_cache *c, const struct product_choice *choice,
                                             struct err *e);

/* The choice for this pass, precision, dims, version and workspace; NULL: none yet. */
const struct engine_choice *tuning_cache_engine(const struct tuning_cache *c, const struct engine_choice *like);
/* Like tuning_cache_add_product; at most TUNING_MAX_ENGINES. */
MUST_CHECK status_t tuning_cache_add_engine(struct tuning_cache *c, const struct engine_choice *choice, struct err *e);

/* The text, NUL-terminated; the caller frees it. */
char *tuning_cache_write(const struct tuning_cache *c);
/* Parses n bytes of text. INVALID_ARGUMENT with the number of the line. */
MUST_CHECK status_t tuning_cache_parse(const char *text, size_t n, struct tuning_cache *ret, struct err *e);
/* Adds choices from n bytes of text with one or more tables, one after another. Skips the choices of another device,
 * and those for which c already has a choice: the first one counts. Errors are those of tuning_cache_parse, with
 * lines counted in each table. */
MUST_CHECK status_t tuning_cache_take(struct tuning_cache *c, const char *text, size_t n, struct err *e);

#endif
