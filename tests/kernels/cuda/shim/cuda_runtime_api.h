/* The part of CUDA's runtime that kernels/cuda calls, for a host without a device: memory is the host's, and a stream
 * runs each call at once. Usable from C, like NVIDIA's header of this name. */
#ifndef TESTS_KERNELS_CUDA_SHIM_RUNTIME_API_H
#define TESTS_KERNELS_CUDA_SHIM_RUNTIME_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 } cudaError_t;
typedef struct shim_stream *cudaStream_t;
typedef struct shim_event *cudaEvent_t;
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };

cudaError_t cudaSetDevice(int ordinal);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaMalloc(void **ret, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride, size_t bytes,
                              size_t rows, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

/* The seed of the order in which the threads and blocks of later launches run. */
void shim_seed(uint64_t seed);
/* From now on a launch checks its grid and does not run, and no memory is touched: for shapes of any size. */
void shim_only_grids(bool yes);
/* Launches since the program began. */
uint64_t shim_launches(void);

#ifdef __cplusplus
}
#endif

#endif
