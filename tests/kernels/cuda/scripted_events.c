#include "tests/kernels/cuda/scripted_events.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = calloc(1, sizeof(int));
    return *event ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)stream;
    *(int *)(void *)event = *scripted_clock_ms;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = (float)(*(int *)(void *)to - *(int *)(void *)from);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}
