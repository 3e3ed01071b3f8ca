/* A radix sort, least significant digit first, without atomic operations. In each round a block counts the digits of
 * its tile, one block computes the prefix sums of the counts, and each tile scatters its tokens to their places, in
 * order. */
#include "kernels/cuda/embedding_sort.h"

#include "kernels/cuda/reduce.cuh"

enum { DIGITS = SORT_DIGITS, TILE = SORT_TILE, WARPS = TILE / WARP };

struct tokens_places {
    int32_t *tokens, *positions;
};

/* of_warp: the count of each digit in each warp; later the place of the warp's first token with that digit. */
struct digit_scratch {
    int32_t of_warp[WARPS][DIGITS];
};

static __device__ __forceinline__ int digit_of(int32_t token, int shift) { return token >> shift & (DIGITS - 1); }

/* Fills scratch with the count of each digit in each warp of the tile. Returns how many lanes before this one have
 * the same digit. */
static __device__ __forceinline__ int count_digits(struct digit_scratch &scratch, int digit, bool present) {
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    for (int d = lane; d < DIGITS; d += WARP)
        scratch.of_warp[warp][d] = 0;
    __syncwarp();
    const unsigned same = __match_any_sync(0xffffffffu, present ? digit : DIGITS);
    const int before = __popc(same & ((1u << lane) - 1));
    if (present && before == 0)
        scratch.of_warp[warp][digit] = __popc(same);
    __syncthreads();
    return before;
}

/* counts (DIGITS, tiles). */
static __global__ void __launch_bounds__(TILE)
    count_tile(int32_t *counts, const int32_t *tokens, int64_t n, int64_t vocabulary, int shift) {
    auto &scratch = shared<digit_scratch>();
    const int64_t at = (int64_t)blockIdx.x * TILE + threadIdx.x;
    const int32_t token = at < n && tokens[at] >= 0 && tokens[at] < vocabulary ? tokens[at] : 0;
    (void)count_digits(scratch, digit_of(token, shift), at < n);
    if (threadIdx.x >= DIGITS)
        return;
    int32_t sum = 0;
    for (int w = 0; w < WARPS; w++)
        sum += scratch.of_warp[w][threadIdx.x];
    counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = sum;
}

struct scan_scratch {
    int32_t of_thread[TILE];
};

/* Replaces counts (n) by their exclusive prefix sums. One block: each thread adds up its part, then one adds the
 * parts. */
static __global__ void __launch_bounds__(TILE) add_counts(int32_t *counts, int64_t n) {
    auto &scratch = shared<scan_scratch>();
    const int64_t begin = n * threadIdx.x / TILE, end = n * (threadIdx.x + 1) / TILE;
    int32_t sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += counts[i];
    scratch.of_thread[threadIdx.x] = sum;
    __syncthreads();
    for (int apart = 1; apart < TILE; apart *= 2) {
        const int32_t before = (int)threadIdx.x >= apart ? scratch.of_thread[threadIdx.x - apart] : 0;
        __syncthreads();
        scratch.of_thread[threadIdx.x] += before;
        __syncthreads();
    }
    int32_t total = scratch.of_thread[threadIdx.x] - sum;
    for (int64_t i = begin; i < end; i++) {
        const int32_t count = counts[i];
        counts[i] = total;
        total += count;
    }
}

/* positions NULL: the first round, in which the position of a token is its index. */
static __global__ void __launch_bounds__(TILE)
    scatter_tile(struct tokens_places to, const int32_t *starts, const int32_t *tokens, const int32_t *positions,
                 int64_t n, int64_t vocabulary, int shift) {
    auto &scratch = shared<digit_scratch>();
    const int64_t at = (int64_t)blockIdx.x * TILE + threadIdx.x;
    const bool present = at < n;
    const int32_t token = present && tokens[at] >= 0 && tokens[at] < vocabulary ? tokens[at] : 0;
    const int digit = digit_of(token, shift), before = count_digits(scratch, digit, present);
    if (threadIdx.x < DIGITS) {
        int32_t next = starts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x];
        for (int w = 0; w < WARPS; w++) {
            const int32_t count = scratch.of_warp[w][threadIdx.x];
            scratch.of_warp[w][threadIdx.x] = next;
            next += count;
        }
    }
    __syncthreads();
    if (!present)
        return;
    const int64_t place = scratch.of_warp[threadIdx.x / WARP][digit] + before;
    to.tokens[place] = token;
    to.positions[place] = positions ? positions[at] : (int32_t)at;
}

status_t embedding_sort(const struct kernels *k, struct sorted_tokens *ret, const int32_t *tokens, int64_t n,
                        int64_t vocabulary, void *workspace, struct err *e) {
    int32_t *scratch = (int32_t *)workspace, *counts = scratch + 4 * n;
    const struct tokens_places side[2] = { { scratch, scratch + n }, { scratch + 2 * n, scratch + 3 * n } };
    const dim3 tiles((unsigned)embedding_sort_tiles(n));
    const int32_t *positions = NULL;
    int round = 0;
    for (int shift = 0; shift == 0 || (vocabulary - 1) >> shift > 0; shift += SORT_DIGIT_BITS, round++) {
        const struct tokens_places *to = &side[round % 2];
        TRY(launch(k, e, count_tile, tiles, dim3(TILE), counts, tokens, n, vocabulary, shift));
        TRY(launch(k, e, add_counts, dim3(1), dim3(TILE), counts, DIGITS * embedding_sort_tiles(n)));
        TRY(launch(k, e, scatter_tile, tiles, dim3(TILE), *to, counts, tokens, positions, n, vocabulary, shift));
        tokens = to->tokens;
        positions = to->positions;
    }
    *ret = { tokens, positions };
    return ST_OK;
}
