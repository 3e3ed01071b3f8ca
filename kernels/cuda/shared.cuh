/* The shared memory of a block, uninitialised. It is declared by type, so that the shim can fill it with NaNs before
 * each block runs. */
#ifndef KERNELS_CUDA_SHARED_CUH
#define KERNELS_CUDA_SHARED_CUH

#include <cuda_runtime.h>

#ifdef __CUDACC__
/* The only T of the block. Different uses need different types. */
template <class T> __device__ __forceinline__ T &shared() {
    __shared__ T memory;
    return memory;
}
/* The memory that launch_with_shared reserved, aligned to 16 bytes. */
__device__ __forceinline__ void *dynamic_shared() {
    extern __shared__ uint4 dynamic_memory[];
    return dynamic_memory;
}
#else
using shim::dynamic_shared;
using shim::shared;
#endif

#endif
