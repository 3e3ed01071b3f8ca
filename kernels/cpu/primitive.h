/* One oneDNN matmul primitive with everything that its runs need, so that a run allocates nothing.
 *
 * It is built for `threads` threads and for `lanes` simultaneous runs. With lanes > 1, thread i of a parallel region
 * uses lane i, and each run uses one thread.
 *
 * A packed primitive first reorders B into the blocks that oneDNN's inner loop reads, in a buffer of the caller. */
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
    bool bf16;   /* A, B and the bias are bf16; otherwise fp32 */
    bool c_bf16; /* C is bf16; otherwise fp32 */
    bool packed; /* only with one lane */
};

struct primitive;

MUST_CHECK status_t primitive_new(const struct primitive_shape *s, int threads, int lanes, struct primitive **ret,
                                  struct err *e);
struct primitive *primitive_free(struct primitive *p);
CLEANUP_DEFINE(struct primitive *, primitive_free)

/* Returns true if the implementation adds along k in order for any number of threads (see product.h). */
bool primitive_in_order(const struct primitive *p);

/* Bytes of the buffer for B; 0 if B is not packed, or already has the right layout. */
size_t primitive_packed_bytes(const struct primitive *p);

/* packed: a buffer of primitive_packed_bytes, aligned to a cache line; NULL for 0 bytes. */
MUST_CHECK status_t primitive_run(const struct primitive *p, int lane, void *c, const void *a, const void *b,
                                  const void *bias, void *packed, struct err *e);

#endif
