/* How reductions over rows are divided: into pieces by shape alone, so that the bits do not depend on the number of
 * threads. One thread sums a piece. The sums of the pieces are added in their order. */
#ifndef KERNELS_CPU_PIECE_H
#define KERNELS_CPU_PIECE_H

#include <stdint.h>

/* Enough pieces for the threads of a large host, and enough rows in a piece that adding the pieces costs little. */
enum { MAX_PIECES = 64, MIN_PIECE_ROWS = 16 };

static inline int64_t piece_count(int64_t rows) {
    int64_t n = rows / MIN_PIECE_ROWS;
    return n < 1 ? 1 : n > MAX_PIECES ? MAX_PIECES : n;
}

/* The first row of piece i; piece n begins at `rows`. */
static inline int64_t piece_begin(int64_t rows, int64_t i) { return rows * i / piece_count(rows); }

#endif
