/* The memory that the threads of a block share, uninitialised: declared by type, so that the shim can fill it with NaNs
 * before each block runs. */
#ifndef KERNELS_CUDA_SHARED_CUH
#define KERNELS_CUDA_SHARED_CUH

#include <cuda_runtime.h>

#ifdef __CUDACC__
/* The block's one T; different uses need different types. */
template <class T> __device__ __forceinline__ T &shared() {
    __shared__ T room;
    return room;
}
#else
using shim::shared;
#endif

#endif
