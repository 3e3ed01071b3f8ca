/* Sums and maxima over the threads of a block. Every thread gets the same bits, in an order that the shape of the
 * block alone fixes.
 *
 * For the sums, a block is (32, rows), of which each row of threads is a warp that reduces by itself, or (a multiple
 * of 32 up to 1024, 1). All threads of the block must call. `turn` counts the calls of one type in a kernel: two
 * successive calls use different shared memory, so that one barrier per call is enough. */
#ifndef KERNELS_CUDA_REDUCE_CUH
#define KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/piece.h"
#include "kernels/cuda/shared.cuh"

enum { WARP = 32 };

struct add_up {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
struct larger_of {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a > b ? a : b; }
};

template <class T, class F> __device__ __forceinline__ T warp_reduce(T x, F combine) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        x = combine(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

template <class T, int N, class F> struct reduce_scratch { T at[2][N][WARP]; };

/* Reduces each of the N numbers of x over the block. */
template <class T, int N, class F> __device__ __forceinline__ void block_reduce(T (&x)[N], F combine, int turn) {
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = warp_reduce(x[i], combine);
    const int warps = blockDim.x / WARP;
    if (warps == 1)
        return;
    auto &scratch = shared<reduce_scratch<T, N, F>>().at[turn & 1];
    if (threadIdx.x % WARP == 0)
        for (int i = 0; i < N; i++)
            scratch[i][threadIdx.x / WARP] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++) {
        x[i] = scratch[i][0];
        for (int w = 1; w < warps; w++)
            x[i] = combine(x[i], scratch[i][w]);
    }
}

template <class T> __device__ __forceinline__ T block_sum(T x, int turn) {
    T one[1] = { x };
    block_reduce(one, add_up(), turn);
    return one[0];
}

template <class T> __device__ __forceinline__ T block_max(T x, int turn) {
    T one[1] = { x };
    block_reduce(one, larger_of(), turn);
    return one[0];
}

/* --- sums over rows, cut in pieces (piece.h) -----------------------------------------------------------------------*/
/* A block (32, DEEP) that visits the columns of blockIdx.x and the rows of piece blockIdx.y. A thread has one pack
 * of columns and every `step`-th row. If a row has fewer packs than a warp has lanes, the other lanes take the next
 * rows, so that a warp reads as much of narrow rows at a time as of wide ones. */
enum { DEEP = 8 };

template <class E> struct walk {
    int64_t row, end; /* this thread's first row, and the end of its piece */
    int column;       /* of its pack; width or more: the thread has no columns */
    int lanes, step;  /* lanes per row, a power of two; rows that the block visits at a time */

    __device__ __forceinline__ walk(int64_t rows, int width) : lanes(1) {
        while (lanes < WARP && lanes * PACK<E> < width)
            lanes *= 2;
        const int rows_each = WARP / lanes, lane = (int)threadIdx.x;
        step = DEEP * rows_each;
        row = piece_begin(rows, blockIdx.y, gridDim.y) + (int)threadIdx.y * rows_each + lane / lanes;
        end = piece_begin(rows, (int64_t)blockIdx.y + 1, gridDim.y);
        column = ((int)blockIdx.x * WARP + lane % lanes) * PACK<E>;
    }

    /* Whether the thread has the first row of its columns. This thread gets the sums of walk_sum. */
    __device__ __forceinline__ bool first() const { return threadIdx.y == 0 && (int)threadIdx.x < lanes; }
};

template <class E> static inline int64_t walk_across(int64_t width) {
    static_assert(WARP * PACK<E> * (int)sizeof(E) == PIECE_ACROSS_BYTES, "a lane has 16 bytes of a row");
    return piece_across(width, sizeof(E));
}

/* The grid of a walk: (blocks across, pieces). */
template <class E> static inline dim3 walk_grid(int64_t rows, int64_t width) {
    const int64_t across = walk_across<E>(width);
    return dim3((unsigned)across, (unsigned)piece_count(rows, across));
}

template <class T, int N> struct walk_scratch { T at[DEEP][N][WARP]; };

/* Sums x over the threads of each column, which are `lanes` apart, in the order of their first rows. The first of
 * these threads gets the sum. */
template <class T, int N> __device__ __forceinline__ void walk_sum(T (&x)[N], int lanes = WARP) {
    auto &scratch = shared<walk_scratch<T, N>>().at;
#pragma unroll
    for (int i = 0; i < N; i++)
        scratch[threadIdx.y][i][threadIdx.x] = x[i];
    __syncthreads();
    if (threadIdx.y == 0 && (int)threadIdx.x < lanes)
        for (int at = (int)threadIdx.x + lanes; at < DEEP * WARP; at += lanes)
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] += scratch[at / WARP][i][at % WARP];
}

#endif
