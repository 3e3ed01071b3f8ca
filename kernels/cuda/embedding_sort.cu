/* A radix sort, least significant digit first, that uses no atomics: in each of its rounds a block counts the digits of
 * its tile, one block adds up the counts, and each tile scatters its tokens to where they belong, in order. */
#include "kernels/cuda/embedding_sort.h"

#include "kernels/cuda/reduce.cuh"

enum { DIGITS = SORT_DIGITS, TILE = SORT_TILE, WARPS = TILE / WARP };

struct tokens_places {
    int32_t *tokens, *positions;
};

struct digit_room {
    int32_t of_warp[WARPS][DIGITS]; /* how many of the digit a warp has; then, where its first goes */
};

static __device__ __forceinline__ int digit_of(int32_t token, int shift) { return token >> shift & (DIGITS - 1); }

/* Fills room with how many of each digit each warp of the tile has; returns how many lanes before this one have its
 * digit. */
static __device__ __forceinline__ int count_digits(struct digit_room &room, int digit, bool present) {
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    for (int d = lane; d < DIGITS; d += WARP)
        room.of_warp[warp][d] = 0;
    __syncwarp();
    const unsigned same = __match_any_sync(0xffffffffu, present ? digit : DIGITS);
    const int before = __popc(same & ((1u << lane) - 1));
    if (present && before == 0)
        room.of_warp[warp][digit] = __popc(same);
    __syncthreads();
    return before;
}

/* counts (DIGITS, tiles). */
static __global__ void __launch_bounds__(TILE)
    count_tile(int32_t *counts, const int32_t *tokens, int64_t n, int64_t vocabulary, int shift) {
    auto &room = shared<digit_room>();
    const int64_t at = (int64_t)blockIdx.x * TILE + threadIdx.x;
    const int32_t token = at < n && tokens[at] >= 0 && tokens[at] < vocabulary ? tokens[at] : 0;
    (void)count_digits(room, digit_of(token, shift), at < n);
    if (threadIdx.x >= DIGITS)
        return;
    int32_t sum = 0;
    for (int w = 0; w < WARPS; w++)
        sum += room.of_warp[w][threadIdx.x];
    counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = sum;
}

struct scan_room {
    int32_t of_thread[TILE];
};

/* counts (n) become the sums of those before them. One block: each thread adds up its part, then one adds the parts. */
static __global__ void __launch_bounds__(TILE) add_counts(int32_t *counts, int64_t n) {
    auto &room = shared<scan_room>();
    const int64_t begin = n * threadIdx.x / TILE, end = n * (threadIdx.x + 1) / TILE;
    int32_t sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += counts[i];
    room.of_thread[threadIdx.x] = sum;
    __syncthreads();
    for (int apart = 1; apart < TILE; apart *= 2) {
        const int32_t before = (int)threadIdx.x >= apart ? room.of_thread[threadIdx.x - apart] : 0;
        __syncthreads();
        room.of_thread[threadIdx.x] += before;
        __syncthreads();
    }
    int32_t total = room.of_thread[threadIdx.x] - sum;
    for (int64_t i = begin; i < end; i++) {
        const int32_t count = counts[i];
        counts[i] = total;
        total += count;
    }
}

/* positions NULL: the first round, a token's position is its place. */
static __global__ void __launch_bounds__(TILE)
    scatter_tile(struct tokens_places to, const int32_t *starts, const int32_t *tokens, const int32_t *positions,
                 int64_t n, int64_t vocabulary, int shift) {
    auto &room = shared<digit_room>();
    const int64_t at = (int64_t)blockIdx.x * TILE + threadIdx.x;
    const bool present = at < n;
    const int32_t token = present && tokens[at] >= 0 && tokens[at] < vocabulary ? tokens[at] : 0;
    const int digit = digit_of(token, shift), before = count_digits(room, digit, present);
    if (threadIdx.x < DIGITS) {
        int32_t next = starts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x];
        for (int w = 0; w < WARPS; w++) {
            const int32_t count = room.of_warp[w][threadIdx.x];
            room.of_warp[w][threadIdx.x] = next;
            next += count;
        }
    }
    __syncthreads();
    if (!present)
        return;
    const int64_t place = room.of_warp[threadIdx.x / WARP][digit] + before;
    to.tokens[place] = token;
    to.positions[place] = positions ? positions[at] : (int32_t)at;
}

status_t embedding_sort(const struct kernels *k, struct sorted_tokens *ret, const int32_t *tokens, int64_t n,
                        int64_t vocabulary, void *workspace, struct err *e) {
    int32_t *room = (int32_t *)workspace, *counts = room + 4 * n;
    const struct tokens_places side[2] = { { room, room + n }, { room + 2 * n, room + 3 * n } };
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
