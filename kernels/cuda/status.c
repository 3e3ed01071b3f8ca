#include "kernels/cuda/cuda.h"

status_t cuda_status(cudaError_t error, const char *what, struct err *e) {
    if (error == cudaSuccess)
        return ST_OK;
    (void)cudaGetLastError();
    return err_set(e, error == cudaErrorMemoryAllocation ? ST_RESOURCE_EXHAUSTED : ST_INTERNAL, "%s: %s", what,
                   cudaGetErrorString(error));
}
