/* Matrix products C (m, n) = A (m, k) B (k, n), fp32, each of A and B stored as it is or transposed, by oneDNN.
 *
 * A product's primitive is built at its first use and kept, at most KERNELS_PRODUCTS_MOST of them, the least recently
 * used is dropped first. Bits do not depend on the number of threads, for two reasons:
 *   - oneDNN's blocked AVX-512 product adds along k in order, whatever the threads, unless A is transposed, k is at
 *     least 2,048 and there are more threads than blocks of 64 columns; so a transposed A is cut here along k in pieces
 *     of PRODUCT_DEPTH_TRANSPOSED, accumulated in order
 *   - its other implementations cut k by the number of threads; with one of those a product is cut in slices of C
 *     by shape alone, each slice computed by one thread
 *
 * B is packed first where C has enough rows to pay for it: oneDNN copies an unpacked B again for each block of rows,
 * and reads rows a power of two apart slowly. Any k is cut in pieces of PRODUCT_DEPTH, so that a piece of B that was
 * just packed is still in the cache, and the buffer stays small. A struct products belongs to one thread at a time. */
#ifndef KERNELS_CPU_PRODUCT_H
#define KERNELS_CPU_PRODUCT_H

#include "kernels/kernels.h"

enum { PRODUCT_DEPTH = 4096, PRODUCT_DEPTH_TRANSPOSED = 1536 };

struct product_shape {
    int64_t m, n, k;
    bool a_transposed; /* A is stored (k, m) */
    bool b_transposed; /* B is stored (n, k) */
    bool bias;         /* C = A B + bias (n) */
    bool accumulate;   /* C += A B; not with bias */
};

struct products;

MUST_CHECK status_t products_new(enum kernels_isa isa, int threads, struct products **ret, struct err *e);
struct products *products_free(struct products *p);
CLEANUP_DEFINE(struct products *, products_free)

/* bias is read only where the shape says so. */
MUST_CHECK status_t products_run(struct products *p, const struct product_shape *shape, float *c, const float *a,
                                 const float *b, const float *bias, struct err *e);

/* The same by three loops, the readable reference, and what KERNELS_ISA_PLAIN uses. */
void plain_product(int threads, const struct product_shape *shape, float *c, const float *a, const float *b,
                   const float *bias);

/* The instruction set that oneDNN uses in this process, such as "avx512_core_amx"; static storage. */
const char *products_isa_name(void);

#endif
