/* How the gradient of a convolution's weights is divided: into blocks of EDGE x EDGE channels. One thread computes one
 * block over a piece of the batch. The division depends on the shape alone, so that the bits do not depend on the
 * number of threads.
 *
 * Workspace: the sums (pieces, blocks, kernel, kernel, EDGE, EDGE), then the panels of x and dy of each thread that
 * computes a block: with schedule(static, 1) these are the first threads of the team. */
#ifndef KERNELS_CPU_CONVOLUTION_WEIGHT_H
#define KERNELS_CPU_CONVOLUTION_WEIGHT_H

#include "kernels/kernels.h"

/* WEIGHT_TASKS: enough for the threads of a large host. A panel of dy has WEIGHT_PIXELS pixels, or one row of them. It
 * stays in the L1 cache together with the part of x that is read with it. */
enum { WEIGHT_EDGE = 64, WEIGHT_TASKS = 32, WEIGHT_PIXELS = 256, WEIGHT_LINE = 16 };

static inline int64_t weight_ceil(int64_t n, int64_t of) { return (n + of - 1) / of; }
static inline int64_t weight_min(int64_t a, int64_t b) { return a < b ? a : b; }

struct weight_shape {
    int64_t out_height, out_width;
    int64_t blocks_in, blocks_out, pieces;
    int64_t block_floats;     /* floats of one block's sums */
    int64_t rows;             /* rows of dy in a panel */
    int64_t columns, x_pixel; /* columns of x in a panel with its padding; floats from one pixel to the next */
    int64_t x_floats, dy_floats;
};

static inline struct weight_shape weight_shape_of(const struct convolution_dims *d) {
    struct weight_shape s = { .out_height = convolution_side(d, d->height),
                              .out_width = convolution_side(d, d->width) };
    s.blocks_in = weight_ceil(d->in, WEIGHT_EDGE);
    s.blocks_out = weight_ceil(d->out, WEIGHT_EDGE);
    s.pieces = weight_min(d->batch, weight_ceil(WEIGHT_TASKS, s.blocks_in * s.blocks_out));
    s.block_floats = d->kernel * d->kernel * WEIGHT_EDGE * WEIGHT_EDGE;
    s.rows = weight_min(s.out_height, s.out_width < WEIGHT_PIXELS ? WEIGHT_PIXELS / s.out_width : 1);
    s.columns = (s.out_width - 1) * d->stride + d->kernel;
    /* An odd number of cache lines, so that adjacent pixels use different sets of the cache. */
    s.x_pixel = (weight_ceil(weight_min(d->in, WEIGHT_EDGE), WEIGHT_LINE) | 1) * WEIGHT_LINE;
    s.x_floats = ((s.rows - 1) * d->stride + d->kernel) * s.columns * s.x_pixel;
    s.dy_floats = s.rows * s.out_width * WEIGHT_EDGE;
    return s;
}

static inline size_t weight_workspace(const struct convolution_dims *d, int threads) {
    const struct weight_shape s = weight_shape_of(d);
    const int64_t tasks = s.pieces * s.blocks_in * s.blocks_out;
    return sizeof(float) * (size_t)(tasks * s.block_floats + weight_min(threads, tasks) * (s.x_floats + s.dy_floats));
}

#endif
