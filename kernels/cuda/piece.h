/* How sums over rows are divided: into pieces that depend on the shape alone. Each piece is summed by itself; then
 * the pieces are added in order. Plain C, because a plan counts the workspace of the pieces (workspace.c). */
#ifndef KERNELS_CUDA_PIECE_H
#define KERNELS_CUDA_PIECE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define PIECE_FUNCTION __host__ __device__ static inline
#else
#define PIECE_FUNCTION static inline
#endif

enum { MAX_PIECES = 1024, MIN_PIECE_ROWS = 16 };
/* One warp, 16 bytes per lane. */
enum { PIECE_ACROSS_BYTES = 512 };

/* Blocks, one warp wide, that a row of `width` numbers of `each` bytes needs. */
PIECE_FUNCTION int64_t piece_across(int64_t width, size_t each) {
    return (width * (int64_t)each + PIECE_ACROSS_BYTES - 1) / PIECE_ACROSS_BYTES;
}

/* `across`: the blocks that share the columns of a piece. The total gives every multiprocessor of a large device
 * several blocks. */
PIECE_FUNCTION int64_t piece_count(int64_t rows, int64_t across) {
    const int64_t limit = across < MAX_PIECES ? MAX_PIECES / across : 1, n = rows / MIN_PIECE_ROWS;
    return n < 1 ? 1 : n < limit ? n : limit;
}

/* The first row of piece i of n; piece n begins at `rows`. */
PIECE_FUNCTION int64_t piece_begin(int64_t rows, int64_t i, int64_t n) { return rows * i / n; }

#endif
