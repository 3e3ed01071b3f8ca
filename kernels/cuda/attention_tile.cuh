/* Tiles of attention's operands in shared memory, and the operations of a warp on them with the matrix units. A tile
 * has some positions of D numbers. A head narrower than D is filled with zeros, which add nothing. */
#ifndef KERNELS_CUDA_ATTENTION_TILE_CUH
#define KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/attention_view.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/shared.cuh"

/* A block of four warps owns 64 positions. Each warp owns 16 of them. */
enum { OWN = 64, WARP_ROWS = 16, BLOCK = 128 };

__device__ __forceinline__ int warp_row() { return (int)threadIdx.x / 32 * WARP_ROWS; }

/* The groups of eight numbers in a row are permuted by the row's number, so that the eight rows which a warp reads
 * at once lie in different banks. */
template <int D> __device__ __forceinline__ int place(int row, int eight) {
    return row * D + ((eight ^ (row & 7)) << 3);
}

/* Loads ROWS positions, beginning at `first`, in the background. Positions that do not exist become zeros. from:
 * position 0. */
template <int D, int ROWS, class E>
__device__ __forceinline__ void load_tile(E *to, const E *from, int64_t stride, int first, const struct attention &a) {
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < ROWS * D / 8; i += BLOCK) {
        const int row = i / (D / 8), eight = i % (D / 8);
        const bool exist = first + row < a.time && eight * 8 < a.head;
        copy_16(to + place<D>(row, eight), exist ? from + (first + row) * stride + eight * 8 : from, exist);
    }
}

/* c (16, N) = rows row .. row + 15 of a times the N rows of b. Rows of both have D numbers. */
template <int D, int N, class E>
__device__ __forceinline__ void dot_rows(float (&c)[N / 8][4], const E *a, int row, const E *b) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[j][i] = 0;
#pragma unroll 2
    for (int k = 0; k < D / 16; k++) {
        uint32_t left[4], right[4];
        load_matrices(left, a + place<D>(row + lane() % 16, 2 * k + lane() / 16));
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            load_matrices(right, b + place<D>(16 * j + lane() % 8 + lane() / 16 * 8, 2 * k + lane() / 8 % 2));
            mma(c[2 * j], left, right[0], right[1], E());
            mma(c[2 * j + 1], left, right[2], right[3], E());
        }
    }
}

/* sum (16, D) += weight (16, N), rounded to elements, times the N rows of b. */
template <int D, int N, class E>
__device__ __forceinline__ void add_rows(float (&sum)[D / 8][4], const float (&weight)[N / 8][4], const E *b) {
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        const float(&low)[4] = weight[2 * k], (&high)[4] = weight[2 * k + 1];
        const uint32_t left[4] = { pack(low[0], low[1], E()), pack(low[2], low[3], E()), pack(high[0], high[1], E()),
                                   pack(high[2], high[3], E()) };
        uint32_t right[4];
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            load_transposed(right, b + place<D>(16 * k + lane() % 16, 2 * j + lane() / 16));
            mma(sum[2 * j], left, right[0], right[1], E());
            mma(sum[2 * j + 1], left, right[2], right[3], E());
        }
    }
}

/* Bit i is set if query t of head h keeps its probability for key s + i. `count` bits, at most 32. */
__device__ __forceinline__ uint32_t kept_bits(const struct attention &a, int b, int h, int t, int s, int count) {
    const int64_t first = ((int64_t)h * a.time + t) * a.time + s;
    uint32_t bits = 0;
#pragma unroll 2
    for (int64_t group = first / 4; group * 4 < first + count; group++) {
        uint32_t number[4];
        mask_numbers(a.mask, (uint32_t)b, group, number);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = (int)(group * 4 - first) + i;
            if (at >= 0 && at < count && number[i] >= a.mask.threshold)
                bits |= 1u << at;
        }
    }
    return bits;
}

/* Dropout's mask of a warp's 16 rows and N columns. If rows are queries, each of the four lanes of a quad draws a
 * quarter of the quad's two rows. If rows are keys, a lane draws the 16 keys of every 32nd query. All lanes of the
 * warp must call together. */
template <int N, bool KEYS_DOWN> struct tile_mask {
    static constexpr int EACH = KEYS_DOWN ? WARP_ROWS : N / 4, WORDS = KEYS_DOWN ? N / 32 : 2;
    uint32_t bits[WORDS];

    __device__ __forceinline__ tile_mask(const struct attention &a, int b, int h, int row, int column) {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            bits[i] = KEYS_DOWN ? kept_bits(a, b, h, column + 32 * i + lane(), row, EACH)
                                : kept_bits(a, b, h, row + lane() / 4 + 8 * i, column + lane() % 4 * EACH, EACH);
    }
    /* Whether dropout keeps element c[j][2 * i + c]. */
    __device__ __forceinline__ bool keeps(int j, int i, int c) const {
        const int column = 8 * j + lane() % 4 * 2 + c;
        if (KEYS_DOWN)
            return __shfl_sync(0xffffffffu, bits[j / 4], column % 32) >> (lane() / 4 + 8 * i) & 1;
        return __shfl_sync(0xffffffffu, bits[i], (lane() & ~3) + 8 * j / EACH) >> column % EACH & 1;
    }
};

/* Stores the block's 64 rows times factor at the positions from `first` on, 16 bytes at a time. `tile` is used as
 * staging, so no thread may still need its content. factor[i] belongs to row g (i = 0) or g + 8 (i = 1). */
template <int D, class E>
__device__ __forceinline__ void store_rows(E *to, int64_t stride, int first, const float (&from)[D / 8][4],
                                           const float (&factor)[2], E *tile, const struct attention &a) {
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(uint32_t *)(tile + place<D>(warp_row() + g + 8 * i, j) +
                          2 * t) = pack(from[j][2 * i] * factor[i], from[j][2 * i + 1] * factor[i], E());
    __syncthreads();
    for (int i = (int)threadIdx.x; i < OWN * D / 8; i += BLOCK) {
        const int row = i / (D / 8), eight = i % (D / 8);
        if (first + row < a.time && eight * 8 < a.head)
            *(word *)(to + (first + row) * stride + eight * 8) = *(const word *)(tile + place<D>(row, eight));
    }
    __syncthreads();
}

#endif
