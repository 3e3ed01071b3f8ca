/* Kernels that treat each element, or each pack of elements, by itself:
 *
 *     template <class E> struct twice {
 *         E *y;
 *         __device__ __forceinline__ void operator()(int64_t at, int64_t n_valid) const { ... }
 *     };
 *     return run_each<PACK<E>>(k, twice<E>{ (E *)y }, n, e);
 *
 * `at` is 0, N, 2 N ... below n; `n_valid` is n - at. Any thread may get any of them. */
#ifndef KERNELS_CUDA_EACH_CUH
#define KERNELS_CUDA_EACH_CUH

#include "kernels/cuda/element.cuh"

enum { EACH_THREADS = 256 };

template <int N, class Op> static __global__ void __launch_bounds__(EACH_THREADS) each_pack(Op op, int64_t n) {
    for (int64_t at = first_pack<N>(); at < n; at += pack_stride<N>())
        op(at, n - at);
}

template <int N, class Op> static status_t run_each(const struct kernels *k, Op op, int64_t n, struct err *e) {
    return launch(k, e, each_pack<N, Op>, cuda_grid(k, n, EACH_THREADS * N), dim3(EACH_THREADS), op, n);
}

/* The packs of rows of `width` numbers, row by row. Use run_each<1> with n = row_packs. */
template <class E> struct row_pack {
    int64_t row;
    int column, n_valid;
    __device__ __forceinline__ row_pack(int64_t pack, int width) {
        const int packs = (width + PACK<E> - 1) / PACK<E>;
        row = pack / packs;
        column = (int)(pack % packs) * PACK<E>;
        n_valid = width - column;
    }
};

template <class E> static inline int64_t row_packs(int64_t rows, int64_t width) {
    return rows * ((width + PACK<E> - 1) / PACK<E>);
}

#endif
