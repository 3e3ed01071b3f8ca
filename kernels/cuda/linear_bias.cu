/* The first step of a linear layer's backward, in one pass over dy: through the GELU, and the sums for the bias. */
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pieces.h"
#include "kernels/cuda/reduce.cuh"

/* partial (pieces, width) gets the column sums of the pieces of dy, or NULL. pre NULL: dy is only read. */
template <class E>
static __global__ void __launch_bounds__(WARP *DEEP)
    backward_bias(float *partial, E *dy, const E *pre, int64_t rows, int width, int64_t stride) {
    struct walk<E> w(rows, width);
    float sum[PACK<E>] = {};
    for (int64_t row = w.row; row < w.end && w.column < width; row += w.step) {
        const int64_t at = row * stride + w.column;
        float d[PACK<E>], x[PACK<E>];
        read(d, dy + at, width - w.column);
        if (pre) {
            read(x, pre + at, width - w.column);
#pragma unroll
            for (int j = 0; j < PACK<E>; j++)
                d[j] = float_of(element_of<E>(d[j] * gelu_slope(x[j])));
            write(dy + at, d, width - w.column);
        }
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            sum[j] += d[j];
    }
    if (!partial)
        return;
    walk_sum(sum, w.lanes);
    if (w.first() && w.column < width)
        write(partial + (int64_t)blockIdx.y * width + w.column, sum, width - w.column);
}

status_t cuda_linear_backward_bias(const struct kernels *k, float *dbias, element_t *dy, const element_t *pre,
                                   const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    if (!pre && !dbias)
        return ST_OK;
    float *partial = dbias ? (float *)workspace : NULL;
    dim3 grid;
    TRY(by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        grid = walk_grid<E>(d->rows, d->out);
        return launch(k, e, backward_bias<E>, grid, dim3(WARP, DEEP), partial, (E *)dy, (const E *)pre, d->rows,
                      (int)d->out, linear_stride(d));
    }));
    return dbias ? pieces_add(k, dbias, partial, grid.y, d->out, d->out, accumulate, e) : ST_OK;
}
