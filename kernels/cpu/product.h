/* Matrix products C (m, n) = A (m, k) B (k, n) by oneDNN. A and B are each stored as they are or transposed. A, B and
 * the bias are elements of the table's precision. C has that precision too, or is fp32. Sums are fp32.
 *
 * A product's primitive is built at its first use and kept. At most KERNELS_MAX_PRODUCTS are kept; the least recently
 * used is dropped first. Bits do not depend on the number of threads, for two reasons:
 *   - oneDNN's blocked product (AVX-512; since oneDNN 3 also AVX2) adds along k in order for any number of
 *     threads. There are two exceptions: k is at least 20,000; or A is transposed (in oneDNN 3 an A of one row counts
 *     as transposed), k is at least 2,048 and there are more threads than blocks of 64 columns. So k is cut here in
 *     pieces of PRODUCT_DEPTH, or of PRODUCT_DEPTH_TRANSPOSED, which are accumulated in order.
 *   - oneDNN's other implementations, also the one for AMX, divide k by the number of threads. A product that uses one
 *     of them is divided into slices of C by shape alone, and one thread computes each slice.
 *
 * B is packed first if C has enough rows to make this worthwhile: oneDNN copies an unpacked B again for each block of
 * rows, and reads slowly if rows are a power of two apart. Every k is cut in pieces of PRODUCT_DEPTH, so that a piece
 * of B that was just packed is still in the cache, and the buffer stays small.
 *
 * bf16 uses oneDNN's bf16 products if the processor has instructions for them (AVX512-BF16, AMX). On other processors,
 * and in fp16, which this oneDNN does not support, tiles of A and B are converted to fp32 and multiplied in fp32. If a
 * C of elements takes more than one product, the sums are kept in a separate fp32 buffer and rounded once.
 *
 * A struct products belongs to one thread at a time. Besides primitives it keeps buffers of bounded size: the packed B,
 * and the fp32 tiles or C. */
#ifndef KERNELS_CPU_PRODUCT_H
#define KERNELS_CPU_PRODUCT_H

#include "kernels/kernels.h"

enum { PRODUCT_DEPTH = 4096, PRODUCT_DEPTH_TRANSPOSED = 1536 };

struct product_shape {
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements from a stored row to the next one */
    bool a_transposed;     /* A is stored (k, m) */
    bool b_transposed;     /* B is stored (n, k) */
    bool bias;             /* C = A B + bias (n) */
    bool accumulate;       /* C += A B; not with bias */
    bool c_fp32;           /* C is fp32: a gradient of parameters */
};

struct products;

MUST_CHECK status_t products_new(enum kernels_isa isa, enum kernels_precision precision, int threads,
                                 struct products **ret, struct err *e);
struct products *products_free(struct products *p);
/* Uses a team of `threads` from now on, and drops all cached primitives. */
void products_set_threads(struct products *p, int threads);
CLEANUP_DEFINE(struct products *, products_free)

/* bias is read only if shape->bias is set. */
MUST_CHECK status_t products_run(const struct kernels *k, const struct product_shape *shape, void *c,
                                 const element_t *a, const element_t *b, const element_t *bias, struct err *e);

/* What products of this shape make the table keep (kernels.h). An estimate: oneDNN chooses layouts and code. */
struct kernels_memory products_memory(const struct kernels *k, const struct product_shape *shape);

/* The same by three loops: the readable reference, used by KERNELS_ISA_PLAIN. */
typedef void plain_product_fn(int threads, const struct product_shape *shape, void *c, const element_t *a,
                              const element_t *b, const element_t *bias);
plain_product_fn plain_fp32_product, plain_bf16_product, plain_fp16_product;

/* Returns true if oneDNN computes in the precision itself: fp32, and bf16 on processors that support it. */
bool products_direct(const struct products *p);

/* Returns true if oneDNN multiplies the table's precision itself: for bf16, if the processor has instructions for
 * it. */
bool products_by_onednn(const struct products *p);

/* "fp32", "bf16", "bf16 as fp32" ...: the part of the numerics id that describes products; static storage. */
const char *products_precision_name(const struct products *p);

#endif
