/* Which of several ways to compute one thing takes the least time on the device: where speed goes before the same bits.
 * What they compute goes to one place again and again, so nothing may be added to it. */
#ifndef KERNELS_CUDA_FASTEST_H
#define KERNELS_CUDA_FASTEST_H

#include "base/status.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* Queues one run of a way; false: it does not run, and is not chosen while another one does. */
typedef bool fastest_run(void *ctx, int way);

/* Waits for the stream. *ret: of the n >= 1 ways the one of the shortest run, the first of equal ones. */
MUST_CHECK status_t fastest(cudaStream_t stream, int n, fastest_run *run, void *ctx, int *ret, struct err *e);

#endif
