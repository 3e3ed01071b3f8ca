/* One oneDNN convolution primitive: one pass of one shape, for `batch` samples, run by one thread. `lanes` runs may
 * execute at the same time. Everything that a run needs is allocated when the primitive is built, so that a run
 * allocates nothing. */
#ifndef KERNELS_CPU_CONVOLUTION_PRIMITIVE_H
#define KERNELS_CPU_CONVOLUTION_PRIMITIVE_H

#include "base/cleanup.h"
#include "kernels/kernels.h"

enum convolution_pass { CONVOLUTION_FORWARD, CONVOLUTION_BACKWARD_INPUT };

struct convolution_shape {
    struct convolution_dims dims; /* batch: samples of one run */
    enum convolution_pass pass;
    bool bias; /* only with CONVOLUTION_FORWARD */
    bool bf16; /* x, y and W are bf16, else fp32 */
};

struct convolution_primitive;

/* threads: the size of the team that reorders W. */
MUST_CHECK status_t convolution_primitive_new(const struct convolution_shape *s, int lanes, int threads,
                                              struct convolution_primitive **ret, struct err *e);
struct convolution_primitive *convolution_primitive_free(struct convolution_primitive *p);
CLEANUP_DEFINE(struct convolution_primitive *, convolution_primitive_free)

/* Bytes of W in the layout that the primitive reads. */
size_t convolution_packed_bytes(const struct convolution_primitive *p);
/* Reorders W (out, in, kernel, kernel) to that layout with the whole team. scratch: space for another copy of W. */
MUST_CHECK status_t convolution_pack(const struct convolution_primitive *p, void *packed, const void *w, void *scratch,
                                     struct err *e);

/* Sets W and the bias in every lane, before a parallel region. bias NULL: no bias. */
MUST_CHECK status_t convolution_point(const struct convolution_primitive *p, void *packed, const void *bias,
                                      struct err *e);
/* One run on one thread, inside a parallel region or with one OpenMP thread. The pass decides which of x and y is read
 * and which is written. Returns false if oneDNN failed. */
bool convolution_run(const struct convolution_primitive *p, int lane, const void *x, const void *y);

#endif
