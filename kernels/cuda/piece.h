/* How sums over rows are cut: in pieces by shape alone, each summed on its own; then the pieces are added in order. In
 * plain C, because a plan counts the room that the pieces take (workspace.c). */
#ifndef KERNELS_CUDA_PIECE_H
#define KERNELS_CUDA_PIECE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define PIECE_FUNCTION __host__ __device__ static inline
#else
#define PIECE_FUNCTION static inline
#endif

enum { PIECES_MOST = 1024, PIECE_ROWS_LEAST = 16 };
/* A warp's lanes with 16 bytes each. */
enum { PIECE_ACROSS_BYTES = 512 };

/* Blocks of a warp that go over a row of `width` numbers of `each` bytes. */
PIECE_FUNCTION int64_t piece_across(int64_t width, size_t each) {
    return (width * (int64_t)each + PIECE_ACROSS_BYTES - 1) / PIECE_ACROSS_BYTES;
}

/* `across`: blocks that share a piece's columns. Enough blocks in all for every multiprocessor of a large device to
 * have several. */
PIECE_FUNCTION int64_t piece_count(int64_t rows, int64_t across) {
    const int64_t most = across < PIECES_MOST ? PIECES_MOST / across : 1, n = rows / PIECE_ROWS_LEAST;
    return n < 1 ? 1 : n < most ? n : most;
}

/* The first row of piece i of n; piece n begins at `rows`. */
PIECE_FUNCTION int64_t piece_begin(int64_t rows, int64_t i, int64_t n) { return rows * i / n; }

#endif
