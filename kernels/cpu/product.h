/* Matrix products C (m, n) = A (m, k) B (k, n), each of A and B stored as it is or transposed, by oneDNN. A, B and the
 * bias are elements of the table's precision, C too or fp32; sums are fp32.
 *
 * A product's primitive is built at its first use and kept, at most KERNELS_PRODUCTS_MOST of them, the least recently
 * used is dropped first. Bits do not depend on the number of threads, for two reasons:
 *   - oneDNN's blocked AVX-512 product adds along k in order, whatever the threads, unless A is transposed, k is at
 *     least 2,048 and there are more threads than blocks of 64 columns; so a transposed A is cut here along k in pieces
 *     of PRODUCT_DEPTH_TRANSPOSED, accumulated in order
 *   - its other implementations cut k by the number of threads, that for AMX too; with one of those a product is cut in
 *     slices of C by shape alone, each slice computed by one thread
 *
 * B is packed first where C has enough rows to pay for it: oneDNN copies an unpacked B again for each block of rows,
 * and reads rows a power of two apart slowly. Any k is cut in pieces of PRODUCT_DEPTH, so that a piece of B that was
 * just packed is still in the cache, and the buffer stays small.
 *
 * bf16 runs on oneDNN's bf16 products where the processor has such instructions (AVX512-BF16, AMX). Elsewhere, and in
 * fp16, which this oneDNN has not, tiles of A and B are widened to fp32 and multiplied as such. Where a C of elements
 * takes more than one product it is summed in fp32 aside and rounded once.
 *
 * A struct products belongs to one thread at a time; what it keeps besides primitives are buffers of bounded size: the
 * packed B, and the fp32 tiles or C. */
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
CLEANUP_DEFINE(struct products *, products_free)

/* bias is read only where the shape says so. */
MUST_CHECK status_t products_run(const struct kernels *k, const struct product_shape *shape, void *c,
                                 const element_t *a, const element_t *b, const element_t *bias, struct err *e);

/* The same by three loops, the readable reference, and what KERNELS_ISA_PLAIN uses. */
typedef void plain_product_fn(int threads, const struct product_shape *shape, void *c, const element_t *a,
                              const element_t *b, const element_t *bias);
plain_product_fn plain_fp32_product, plain_bf16_product, plain_fp16_product;

/* True where oneDNN computes in the precision itself: fp32, and bf16 on processors that have it. */
bool products_direct(const struct products *p);

/* oneDNN multiplies the table's precision itself: for bf16, the processor has instructions for it. */
bool products_by_onednn(const struct products *p);

/* "fp32", "bf16", "bf16 as fp32" ...: what the numerics id says of products; static storage. */
const char *products_precision_name(const struct products *p);

/* The instruction set that oneDNN uses in this process, such as "avx512_core_amx"; static storage. */
const char *products_isa_name(void);

#endif
