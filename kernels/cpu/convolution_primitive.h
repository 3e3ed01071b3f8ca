/* One oneDNN convolution primitive, one pass of one shape, for `batch` samples and one thread at a time; `lanes` of
 * them may run at once. Everything that its runs need is made with it, so that a run allocates nothing. */
#ifndef KERNELS_CPU_CONVOLUTION_PRIMITIVE_H
#define KERNELS_CPU_CONVOLUTION_PRIMITIVE_H

#include "base/cleanup.h"
#include "kernels/kernels.h"

enum convolution_pass { CONVOLUTION_FORWARD, CONVOLUTION_BACKWARD_INPUT };

struct convolution_shape {
    struct convolution_dims dims; /* batch: of one run */
    enum convolution_pass pass;
    bool bias; /* FORWARD */
    bool bf16; /* x, y and W are bf16, else fp32 */
};

struct convolution_primitive;

/* threads: of the team that reorders W. */
MUST_CHECK status_t convolution_primitive_new(const struct convolution_shape *s, int lanes, int threads,
                                              struct convolution_primitive **ret, struct err *e);
struct convolution_primitive *convolution_primitive_free(struct convolution_primitive *p);
CLEANUP_DEFINE(struct convolution_primitive *, convolution_primitive_free)

/* Bytes of W in the order that the primitive reads it in. */
size_t convolution_packed_bytes(const struct convolution_primitive *p);
/* W (out, in, kernel, kernel) into that order, by the team. scratch: room for another W. */
MUST_CHECK status_t convolution_pack(const struct convolution_primitive *p, void *packed, const void *w, void *scratch,
                                     struct err *e);

/* Points every lane at W, before a parallel region. bias NULL: none. */
MUST_CHECK status_t convolution_point(const struct convolution_primitive *p, void *packed, const void *bias,
                                      struct err *e);
/* One run on one thread, inside a parallel region or with one OpenMP thread. x and y are read or written as the pass
 * says. False when oneDNN failed. */
bool convolution_run(const struct convolution_primitive *p, int lane, const void *x, const void *y);

#endif
