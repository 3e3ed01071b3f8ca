/* One oneDNN matmul primitive with all that its runs need, so that a run allocates nothing.
 *
 * It is built for `threads` threads and for `lanes` simultaneous runs (lane i is one thread's). With lanes > 1 each run
 * is one thread's, inside a parallel region.
 *
 * A packed primitive first reorders B into the blocks that oneDNN's inner loop reads, in a buffer of the caller's. */
#ifndef KERNELS_CPU_PRIMITIVE_H
#define KERNELS_CPU_PRIMITIVE_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct primitive_shape {
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements from a stored row to the next one */
    bool a_transposed, b_transposed, bias, accumulate;
    bool bf16;   /* A, B and the bias; else they are fp32 */
    bool c_bf16; /* C */
    bool packed; /* only with one lane */
};

struct primitive;

MUST_CHECK status_t primitive_new(const struct primitive_shape *s, int threads, int lanes, struct primitive **ret,
                                  struct err *e);
struct primitive *primitive_free(struct primitive *p);
CLEANUP_DEFINE(struct primitive *, primitive_free)

/* True for an implementation that adds along k in order, whatever the number of threads (see product.h). */
bool primitive_in_order(const struct primitive *p);

/* Bytes of the buffer for B; 0 when it is not packed, or needs no other order. */
size_t primitive_packed_bytes(const struct primitive *p);

/* packed: primitive_packed_bytes, on a cache line; NULL for 0 bytes. */
MUST_CHECK status_t primitive_run(const struct primitive *p, int lane, void *c, const void *a, const void *b,
                                  const void *bias, void *packed, struct err *e);

#endif
