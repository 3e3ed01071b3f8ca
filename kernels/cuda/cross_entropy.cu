/* A block has a row of logits: a pass that finds the largest and the sum of exponentials at once (Milakov and
 * Gimelshein, arXiv 1805.02867), then a pass that writes the gradient in place. The second finds the row in the L2
 * cache. */
#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

enum { THREADS = 512 };

/* A row as packs at addresses that are multiples of 16, wherever it begins: an odd vocabulary's rows do not begin on
 * one. The first and the last pack may be cut. */
template <class E> struct row_packs {
    E *row;
    int width, first; /* the first pack's column: 0 or less */

    __device__ __forceinline__ row_packs(E *from, int numbers)
        : row(from), width(numbers), first(-(int)((uintptr_t)from % sizeof(word) / sizeof(E))) {}
    __device__ __forceinline__ int begin() const { return first + (int)threadIdx.x * PACK<E>; }
    __device__ __forceinline__ bool has(int column) const { return column >= 0 && column < width; }

    __device__ __forceinline__ void load(float (&to)[PACK<E>], int column) const {
        if (column >= 0)
            return read(to, row + column, width - column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            to[j] = has(column + j) ? float_of(row[column + j]) : 0.0f;
    }
    __device__ __forceinline__ void store(int column, const float (&from)[PACK<E>]) const {
        if (column >= 0)
            return write(row + column, from, width - column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            if (has(column + j))
                row[column + j] = element_of<E>(from[j]);
    }
};

template <class E> static constexpr int STRIDE = THREADS *PACK<E>;

/* The largest and the sum of exp(logit - largest) of what this thread has of the row. */
template <class E>
static __device__ __forceinline__ void thread_sum(const struct row_packs<E> &r, float &most, float &sum) {
    most = -INFINITY;
    sum = 0;
    for (int column = r.begin(); column < r.width; column += STRIDE<E>) {
        float x[PACK<E>], most_here = most;
        r.load(x, column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            most_here = r.has(column + j) ? fmaxf(most_here, x[j]) : most_here;
        if (most_here == -INFINITY)
            continue;
        sum *= expf(most - most_here);
        most = most_here;
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            sum += r.has(column + j) ? expf(x[j] - most) : 0;
    }
}

template <class E>
static __global__ void __launch_bounds__(THREADS) cross_entropy(float *losses, E *logits, const int32_t *targets,
                                                                int vocabulary, const float *scale, uint64_t *fault) {
    const int64_t row = blockIdx.x;
    const struct row_packs<E> r(logits + row * vocabulary, vocabulary);
    const int32_t target = index_checked(fault, targets[row], -1, vocabulary, row, -1);
    const float wanted = target < 0 ? 0 : float_of(r.row[target]);
    float own, sum;
    thread_sum(r, own, sum);
    const float most = block_max(own, 0);
    sum = block_sum(own == -INFINITY ? 0 : sum * expf(own - most), 0);
    if (threadIdx.x == 0)
        losses[row] = target < 0 ? 0 : logf(sum) + most - wanted;
    if (!scale)
        return;
    const float factor = target < 0 ? 0 : *scale / sum, minus = target < 0 ? 0 : *scale;
    for (int column = r.begin(); column < vocabulary; column += STRIDE<E>) {
        float x[PACK<E>];
        r.load(x, column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            x[j] = target < 0 ? 0 : factor * expf(x[j] - most) - (column + j == target ? minus : 0);
        r.store(column, x);
    }
}

status_t cuda_cross_entropy(const struct kernels *k, float *losses, element_t *logits, const int32_t *targets,
                            int64_t rows, int64_t vocabulary, const float *scale, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, cross_entropy<E>, dim3((unsigned)rows), dim3(THREADS), losses, (E *)logits, targets,
                      (int)vocabulary, scale, cuda_of(k)->faults + CUDA_FAULT_TARGET);
    });
}

struct smaller_of {
    __device__ __forceinline__ int operator()(int a, int b) const { return a < b ? a : b; }
};

template <class E>
static __global__ void __launch_bounds__(THREADS)
    is_correct(float *correct, const E *logits, const int32_t *targets, int vocabulary) {
    const E *row = logits + (int64_t)blockIdx.x * vocabulary;
    float most = -INFINITY;
    int first[1] = { vocabulary };
    for (int v = (int)threadIdx.x; v < vocabulary; v += THREADS)
        if (float_of(row[v]) > most || first[0] == vocabulary) {
            most = float_of(row[v]);
            first[0] = v;
        }
    const float largest = block_max(first[0] < vocabulary ? most : -INFINITY, 0);
    first[0] = most == largest ? first[0] : vocabulary;
    block_reduce(first, smaller_of(), 0);
    if (threadIdx.x == 0)
        correct[blockIdx.x] = first[0] == targets[blockIdx.x];
}

status_t cuda_correct(const struct kernels *k, float *correct, const element_t *logits, const int32_t *targets,
                      int64_t rows, int64_t vocabulary, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, is_correct<E>, dim3((unsigned)rows), dim3(THREADS), correct, (const E *)logits, targets,
                      (int)vocabulary);
    });
}
