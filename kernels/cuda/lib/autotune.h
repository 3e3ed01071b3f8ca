/* Selects the fastest of several implementations ("ways") of one computation by timing, for `numerics: fast`, which
 * prefers speed to equal bits. All ways write to the same memory repeatedly, so a way must not add to its result. */
#ifndef KERNELS_CUDA_FASTEST_H
#define KERNELS_CUDA_FASTEST_H

#include "base/status.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

enum { FASTEST_WAYS_MAX = 64 };

/* Queues one run of a way. False: the way does not run, and is not chosen while another one runs. */
typedef bool fastest_run(void *ctx, int way);

/* Waits for the stream. *ret: the fastest of 1 <= n <= FASTEST_WAYS_MAX ways, the first of equal ones; 0 if none
 * runs. Takes about 50 ms, and about ten runs of each way that is not extremely slow. */
MUST_CHECK status_t fastest(cudaStream_t stream, int n, fastest_run *run, void *ctx, int *ret, struct err *e);

#endif
