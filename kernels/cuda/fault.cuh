/* What kernels tell of what they find. Indices come from files: a kernel checks them, and tells finish of one that is
 * out of range (struct cuda's faults). */
#ifndef KERNELS_CUDA_FAULT_CUH
#define KERNELS_CUDA_FAULT_CUH

#include "kernels/cuda/element.cuh"

/* *to = value: any number of threads may do so at once, and one of them is kept. */
template <class T> __device__ __forceinline__ void tell(T *to, T value) {
#ifdef __CUDACC__
    *(volatile T *)to = value;
#else
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
#endif
}

/* index, if it is in least .. end - 1; else `instead`, and the fault is that of its position. One of several is kept.
 */
__device__ __forceinline__ int32_t index_checked(uint64_t *fault, int32_t index, int32_t least, int64_t end,
                                                 int64_t position, int32_t instead) {
    if (index >= least && index < end)
        return index;
    tell(fault, (uint64_t)(position + 1) << 32 | (uint32_t)index);
    return instead;
}

#endif
