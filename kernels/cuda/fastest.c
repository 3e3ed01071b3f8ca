#include "kernels/cuda/fastest.h"

#include "kernels/cuda/cuda.h"

#include <float.h>

enum { REPEATS = 5 };

/* Milliseconds of REPEATS runs, after one that is not counted; FLT_MAX where it does not run. */
static float measured(cudaStream_t stream, fastest_run *run, void *ctx, int way, const cudaEvent_t event[2]) {
    float ms = 0;
    for (int i = 0; i <= REPEATS; i++) {
        if (i == 1 && cudaEventRecord(event[0], stream) != cudaSuccess)
            return FLT_MAX;
        if (!run(ctx, way))
            return FLT_MAX;
    }
    if (cudaEventRecord(event[1], stream) != cudaSuccess || cudaEventSynchronize(event[1]) != cudaSuccess ||
        cudaEventElapsedTime(&ms, event[0], event[1]) != cudaSuccess)
        return FLT_MAX;
    return ms;
}

status_t fastest(cudaStream_t stream, int n, fastest_run *run, void *ctx, int *ret, struct err *e) {
    cudaEvent_t event[2] = { NULL, NULL };
    float least = FLT_MAX;
    status_t st = ST_OK;
    for (int i = 0; st == ST_OK && i < 2; i++)
        st = cuda_status(cudaEventCreate(&event[i]), "making an event", e);
    if (st == ST_OK)
        *ret = 0;
    for (int way = 0; st == ST_OK && way < n; way++) {
        const float ms = measured(stream, run, ctx, way, event);
        if (ms < least) {
            least = ms;
            *ret = way;
        }
    }
    for (int i = 0; i < 2; i++)
        if (event[i])
            (void)cudaEventDestroy(event[i]);
    return st;
}
