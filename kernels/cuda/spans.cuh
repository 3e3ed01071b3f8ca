/* Kernels that process many arrays in one launch. The list of arrays is a parameter of the kernel, and each block
 * finds the array that contains its part of the work.
 *
 *     static __global__ void twice(const __grid_constant__ spans<struct span> list) {
 *         for (int part = blockIdx.x; part < list.parts; part += gridDim.x) {
 *             const int i = list.holding(part);
 *             const int64_t begin = (int64_t)(part - list.first[i]) * EACH;
 *             ...
 *
 *     return spans_each(all, n_all, EACH, [&](const auto &list) { return launch(k, e, twice, ..., list); });
 *
 * A list in the kernel's parameters needs no device memory and no upload, and is captured with its launch. With the
 * other parameters it takes at most 4 KiB, which every driver allows. A limit of 32,764 bytes would need a driver of
 * CUDA 12.1, would be copied at each launch, and would save GPT-2 124M two launches per step. */
#ifndef KERNELS_CUDA_SPANS_CUH
#define KERNELS_CUDA_SPANS_CUH

#include "kernels/cuda/launch.h"

enum { PARAMETER_BYTES = 4096, SPANS_BYTES = 3840 };

/* S has a member n, the count of its numbers. */
template <class S> struct spans {
    static constexpr int MAX = SPANS_BYTES / (int)(sizeof(S) + sizeof(int));
    S at[MAX];
    int first[MAX]; /* the index of the first part of each array */
    int n, parts;

    /* The array that contains the part. */
    __device__ __forceinline__ int holding(int part) const {
        int low = 0;
        for (int high = n - 1; low < high;) {
            const int middle = (low + high + 1) / 2;
            if (first[middle] <= part)
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }
};

/* Calls f with lists of all arrays that are not empty, in parts of `each` numbers. The last part of an array may be
 * shorter. */
template <class S, class F> status_t spans_each(const S *all, int n_all, int64_t each, F f) {
    spans<S> list;
    list.n = list.parts = 0;
    for (int i = 0; i < n_all; i++) {
        if (all[i].n > 0) {
            list.at[list.n] = all[i];
            list.first[list.n++] = list.parts;
            list.parts += (int)((all[i].n + each - 1) / each);
        }
        if (list.n == spans<S>::MAX || (i == n_all - 1 && list.n > 0)) {
            TRY(f((const spans<S> &)list));
            list.n = list.parts = 0;
        }
    }
    return ST_OK;
}

#endif
