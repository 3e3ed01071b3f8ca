/* How kernels report errors. Indices come from files: a kernel checks them and records an index that is out of range
 * in struct cuda's faults, which finish reports. */
#ifndef KERNELS_CUDA_FAULT_CUH
#define KERNELS_CUDA_FAULT_CUH

#include "kernels/cuda/element.cuh"

/* *to = value. Any number of threads may store at once; the value of one of them remains. */
template <class T> __device__ __forceinline__ void store_shared(T *to, T value) {
#ifdef __CUDACC__
    *(volatile T *)to = value;
#else
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
#endif
}

/* Returns index if it is in min .. end - 1. Otherwise returns `instead` and stores a fault with the position. If
 * several threads find a fault, one of the faults remains. */
__device__ __forceinline__ int32_t index_checked(uint64_t *fault, int32_t index, int32_t min, int64_t end,
                                                 int64_t position, int32_t instead) {
    if (index >= min && index < end)
        return index;
    store_shared(fault, (uint64_t)(position + 1) << 32 | (uint32_t)index);
    return instead;
}

#endif
