/* Embedding: y = wte[token] + wpe[position], and its gradients.
 *
 * Forward: each thread copies one pack of columns of one row. Backward must add all rows of dy with the same token
 * without atomic operations, in a fixed order. So the positions are sorted by token (embedding_sort.cu keeps the
 * order of equal tokens) and the sorted order is cut into parts of SORT_PART places. backward_parts sums the runs of
 * equal tokens in each part: a run that lies within one part is added to its row of dwte, and a run that crosses
 * into another part is stored. backward_joined adds the stored sums of each such run, part after part. Thus many
 * threads share a frequent token. The gradient of wpe needs no sorting: backward_positions adds the samples of each
 * position in order. */
#include "kernels/cuda/embedding_sort.h"
#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

enum { THREADS = 256 };

static dim3 columns_block() { return dim3(WARP, DEEP); }

template <class E> static unsigned columns_across(int64_t width) { return (unsigned)walk_across<E>(width); }

/* Blocks of (32 packs of columns, DEEP rows). */
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

/* sum (a pack of columns) += the rows of dy at the sorted places from `at` on that have the same token, in order, up
 * to `end` at most. Returns the first place after them. AHEAD rows are loaded before the first is added, so that
 * their loads overlap. */
template <class E>
static __device__ __forceinline__ int64_t add_run(float (&sum)[PACK<E>], const E *dy,
                                                  const struct sorted_tokens &sorted, int64_t at, int64_t end,
                                                  int width, int column) {
    enum { AHEAD = 2 };
    const int32_t token = sorted.tokens[at];
    while (at < end && sorted.tokens[at] == token) {
        float x[AHEAD][PACK<E>];
        int n = 0;
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            const bool same = at + ahead < end && sorted.tokens[at + ahead] == token;
            read(x[ahead], dy + (int64_t)(same ? sorted.positions[at + ahead] : 0) * width + column,
                 same ? width - column : 0);
            n += same;
        }
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++)
#pragma unroll
            for (int j = 0; ahead < n && j < PACK<E>; j++)
                sum[j] += x[ahead][j];
        at += n;
    }
    return at;
}

/* row += sum. */
template <class E>
static __device__ __forceinline__ void add_to_row(float *row, const float (&sum)[PACK<E>], int columns) {
    float x[PACK<E>];
    read(x, row, columns);
#pragma unroll
    for (int j = 0; j < PACK<E>; j++)
        x[j] += sum[j];
    write(row, x, columns);
}

/* A row of threads sums one part of the sorted order. A run that lies within the part is added to its token's row. A
 * run that continues from the part before is stored at row 2 part of `left`; otherwise a run that continues in the
 * next part is stored at row 2 part + 1. */
template <class E>
static __global__ void __launch_bounds__(THREADS)
    backward_parts(float *dwte, float *left, struct sorted_tokens sorted, const E *dy, int64_t n, int width) {
    const int64_t part = (int64_t)blockIdx.x * DEEP + threadIdx.y, begin = part * SORT_PART,
                  end = begin + SORT_PART < n ? begin + SORT_PART : n;
    const int column = (int)(blockIdx.y * WARP + threadIdx.x) * PACK<E>;
    if (column >= width)
        return;
    for (int64_t at = begin; at < end;) {
        const int32_t token = sorted.tokens[at];
        const bool came = at == begin && at > 0 && sorted.tokens[at - 1] == token;
        float sum[PACK<E>] = {};
        at = add_run(sum, dy, sorted, at, end, width, column);
        const bool goes_on = at == end && end < n && sorted.tokens[end] == token;
        if (came || goes_on)
            write(left + (2 * part + !came) * width + column, sum, width - column);
        else
            add_to_row<E>(dwte + (int64_t)token * width + column, sum, width - column);
    }
}

/* A row of threads whose part has the beginning of a run that continues in the next part adds up all stored sums of
 * this run. */
template <class E>
static __global__ void __launch_bounds__(THREADS)
    backward_joined(float *dwte, const float *left, struct sorted_tokens sorted, int64_t n, int width) {
    const int64_t part = (int64_t)blockIdx.x * DEEP + threadIdx.y, begin = part * SORT_PART;
    int64_t end = begin + SORT_PART;
    const int column = (int)(blockIdx.y * WARP + threadIdx.x) * PACK<E>;
    if (column >= width || end >= n)
        return;
    const int32_t token = sorted.tokens[end];
    if (sorted.tokens[end - 1] != token || (begin > 0 && sorted.tokens[begin - 1] == token))
        return;
    float sum[PACK<E>];
    read(sum, left + (2 * part + 1) * width + column, width - column);
    for (; end < n && sorted.tokens[end] == token; end += SORT_PART) {
        float x[PACK<E>];
        read(x, left + end / SORT_PART * 2 * width + column, width - column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            sum[j] += x[j];
    }
    add_to_row<E>(dwte + (int64_t)token * width + column, sum, width - column);
}

/* A row of threads sums position t over all samples, in order. Positions at or past `time` are cleared. */
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
#pragma unroll 4
    for (int64_t b = 0; b < (t < time ? batch : 0); b++) {
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
    const size_t sort_bytes = embedding_sort_bytes(n);
    float *left = (float *)(void *)((char *)workspace + sort_bytes);
    struct sorted_tokens sorted;
    TRY(embedding_sort(k, &sorted, tokens, n, vocabulary, workspace, e));
    if (!accumulate)
        TRY(cuda_status(cudaMemsetAsync(dwte, 0, sizeof(float) * (size_t)(vocabulary * width), cuda_of(k)->stream),
                        "clearing a gradient", e));
    return by_precision(k, [&](auto zero) -> status_t {
        typedef decltype(zero) E;
        const dim3 parts(row_blocks(embedding_sort_parts(n)), columns_across<E>(width));
        TRY(launch(k, e, backward_parts<E>, parts, columns_block(), dwte, left, sorted, (const E *)dy, n, (int)width));
        TRY(launch(k, e, backward_joined<E>, parts, columns_block(), dwte, (const float *)left, sorted, n, (int)width));
        if (!dwpe)
            return ST_OK;
        return launch(k, e, backward_positions<E>, dim3(row_blocks(positions), columns_across<E>(width)),
                      columns_block(), dwpe, (const E *)dy, batch, time, positions, (int)width, accumulate);
    });
}
