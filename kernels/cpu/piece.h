/* How reductions over rows are cut: in pieces by shape alone, so that the bits do not depend on the number of threads.
 * A piece is summed by one thread, the pieces are added in their order. */
#ifndef KERNELS_CPU_PIECE_H
#define KERNELS_CPU_PIECE_H

#include <stdint.h>

/* Enough pieces for the threads of a large host; enough rows in a piece that adding the pieces costs little. */
enum { PIECES_MOST = 64, PIECE_ROWS_LEAST = 16 };

static inline int64_t piece_count(int64_t rows) {
    int64_t n = rows / PIECE_ROWS_LEAST;
    return n < 1 ? 1 : n > PIECES_MOST ? PIECES_MOST : n;
}

/* The first row of piece i; piece n begins at `rows`. */
static inline int64_t piece_begin(int64_t rows, int64_t i) { return rows * i / piece_count(rows); }

#endif
