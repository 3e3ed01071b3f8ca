/* Backward without atomics: the positions are sorted by their token (a radix sort that keeps the order of equal ones),
 * then each token's run of positions is summed in that order by one row of threads. */
#include "kernels/cuda/embedding_sort.h"
#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

enum { THREADS = 256 };

static dim3 columns_block() { return dim3(WARP, DEEP); }

template <class E> static unsigned columns_across(int64_t width) { return (unsigned)walk_across<E>(width); }

/* Blocks (32 packs of columns, DEEP rows). */
template <class E>
static __global__ void __launch_bounds__(THREADS)
    forward(E *y, const int32_t *tokens, const E *wte, const E *wpe, int64_t rows, int64_t time, int width,
            int64_t vocabulary, uint64_t *fault) {
    const int64_t row = (int64_t)blockIdx.x * DEEP + threadIdx.y;
    const int column = (int)(blockIdx.y * WARP + threadIdx.x) * PACK<E>;
    if (row >= rows || column >= width)
        return;
    const int64_t token = index_checked(fault, tokens[row], 0, vocabulary, row, 0);
    float a[PACK<E>], b[PACK<E>];
    read(a, wte + token * width + column, width - column);
    if (wpe) {
        read(b, wpe + row % time * width + column, width - column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            a[j] += b[j];
    }
    write(y + row * width + column, a, width - column);
}

static unsigned row_blocks(int64_t rows) { return (unsigned)((rows + DEEP - 1) / DEEP); }

status_t cuda_embedding_forward(const struct kernels *k, element_t *y, const int32_t *tokens, const element_t *wte,
                                const element_t *wpe, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, forward<E>, dim3(row_blocks(batch * time), columns_across<E>(width)), columns_block(),
                      (E *)y, tokens, (const E *)wte, (const E *)wpe, batch * time, time, (int)width, vocabulary,
                      cuda_of(k)->faults + CUDA_FAULT_TOKEN);
    });
}

/* to (a pack of a row) += dy's rows at positions[0], [1], ... while they belong to the same token. Several rows are on
 * their way at once, but they are added in order. */
template <class E>
static __device__ __forceinline__ void add_run(float (&sum)[PACK<E>], const E *dy, const int32_t *positions,
                                               const int32_t *tokens, int64_t n, int width, int column) {
    enum { AHEAD = 4 };
    for (int64_t i = 0; i < n && tokens[i] == tokens[0]; i += AHEAD) {
        float x[AHEAD][PACK<E>];
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            const bool same = i + ahead < n && tokens[i + ahead] == tokens[0];
            read(x[ahead], dy + (int64_t)(same ? positions[i + ahead] : 0) * width + column, same ? width - column : 0);
        }
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++)
            if (i + ahead < n && tokens[i + ahead] == tokens[0])
#pragma unroll
                for (int j = 0; j < PACK<E>; j++)
                    sum[j] += x[ahead][j];
    }
}

/* The row of threads at a token's first place in the sorted order sums its run; the others have nothing to do. */
template <class E>
static __global__ void __launch_bounds__(THREADS)
    backward_tokens(float *dwte, const int32_t *tokens, const int32_t *positions, const E *dy, int64_t n, int width) {
    const int64_t at = (int64_t)blockIdx.x * DEEP + threadIdx.y;
    const int column = (int)(blockIdx.y * WARP + threadIdx.x) * PACK<E>;
    if (at >= n || column >= width || (at > 0 && tokens[at - 1] == tokens[at]))
        return;
    float *row = dwte + (int64_t)tokens[at] * width + column, sum[PACK<E>];
    read(sum, row, width - column);
    add_run(sum, dy, positions + at, tokens + at, n - at, width, column);
    write(row, sum, width - column);
}

/* A row of threads has a position t: its rows of all samples, in order. Positions at or past `time` are cleared. */
template <class E>
static __global__ void __launch_bounds__(THREADS)
    backward_positions(float *dwpe, const E *dy, int64_t batch, int64_t time, int64_t positions, int width,
                       bool accumulate) {
    const int64_t t = (int64_t)blockIdx.x * DEEP + threadIdx.y;
    const int column = (int)(blockIdx.y * WARP + threadIdx.x) * PACK<E>;
    if (t >= positions || column >= width)
        return;
    float sum[PACK<E>] = {};
    if (accumulate)
        read(sum, dwpe + t * width + column, width - column);
    for (int64_t b = 0; b < batch && t < time; b++) {
        float x[PACK<E>];
        read(x, dy + (b * time + t) * width + column, width - column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            sum[j] += x[j];
    }
    write(dwpe + t * width + column, sum, width - column);
}

status_t cuda_embedding_backward(const struct kernels *k, float *dwte, float *dwpe, const int32_t *tokens,
                                 const element_t *dy, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                 int64_t positions, bool accumulate, void *workspace, struct err *e) {
    const int64_t n = batch * time;
    struct sorted_tokens sorted;
    TRY(embedding_sort(k, &sorted, tokens, n, vocabulary, workspace, e));
    if (!accumulate)
        TRY(cuda_status(cudaMemsetAsync(dwte, 0, sizeof(float) * (size_t)(vocabulary * width), cuda_of(k)->stream),
                        "clearing a gradient", e));
    return by_precision(k, [&](auto zero) -> status_t {
        typedef decltype(zero) E;
        TRY(launch(k, e, backward_tokens<E>, dim3(row_blocks(n), columns_across<E>(width)), columns_block(), dwte,
                   sorted.tokens, sorted.positions, (const E *)dy, n, (int)width));
        if (!dwpe)
            return ST_OK;
        return launch(k, e, backward_positions<E>, dim3(row_blocks(positions), columns_across<E>(width)),
                      columns_block(), dwpe, (const E *)dy, batch, time, positions, (int)width, accumulate);
    });
}
