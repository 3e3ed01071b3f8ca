/* The first step of a linear layer's backward, in one pass over dy: takes dy back through the GELU and sums the
 * columns for the bias.
 *
 * If all rows begin on 16-byte boundaries (WIDE), a thread loads AHEAD rows of its columns before it computes the
 * first of them: one load at a time would leave the memory idle. Otherwise it processes row by row and tests each
 * pack's address. Both add the rows of a column in the same order. */
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pieces.h"
#include "kernels/cuda/reduce.cuh"

enum { AHEAD = 4 };

template <class E> struct gradient_pass {
    E *dy;
    const E *pre; /* NULL: no GELU, dy is only read */
    int64_t stride;
    int width;
};

/* A pack of dy, through the GELU if there is one, with the rounding of the stored value. */
template <class E, bool GELU>
static __device__ __forceinline__ void through(float (&d)[PACK<E>], const float (&x)[PACK<E>]) {
    if (GELU)
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            d[j] = float_of(element_of<E>(d[j] * gelu_slope<E>(x[j])));
}

template <class E> static __device__ __forceinline__ void add(float (&sum)[PACK<E>], const float (&d)[PACK<E>]) {
#pragma unroll
    for (int j = 0; j < PACK<E>; j++)
        sum[j] += d[j];
}

/* Processes the rows from w.row on, AHEAD at a time, while at least AHEAD rows are left. */
template <class E, bool GELU>
static __device__ __forceinline__ void rows_ahead(struct walk<E> &w, const gradient_pass<E> &p, float (&sum)[PACK<E>]) {
    for (; w.row + (AHEAD - 1) * w.step < w.end; w.row += AHEAD * w.step) {
        word dy[AHEAD], pre[AHEAD];
        const int64_t first = w.row * p.stride + w.column, each = w.step * p.stride;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            dy[i] = *(const word *)(p.dy + first + i * each);
            if (GELU)
                pre[i] = *(const word *)(p.pre + first + i * each);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float d[PACK<E>], x[PACK<E>] = {};
            convert_to_fp32<E>(d, dy[i]);
            if (GELU) {
                convert_to_fp32<E>(x, pre[i]);
                through<E, GELU>(d, x);
                *(word *)(p.dy + first + i * each) = round_to<E>(d);
            }
            add<E>(sum, d);
        }
    }
}

template <class E, bool GELU>
static __device__ __forceinline__ void one_row(const struct walk<E> &w, const gradient_pass<E> &p,
                                               float (&sum)[PACK<E>]) {
    const int64_t at = w.row * p.stride + w.column, n_valid = p.width - w.column;
    float d[PACK<E>], x[PACK<E>];
    read(d, p.dy + at, n_valid);
    if (GELU) {
        read(x, p.pre + at, n_valid);
        through<E, GELU>(d, x);
        write(p.dy + at, d, n_valid);
    }
    add<E>(sum, d);
}

/* partial (pieces, width) receives the column sums of the pieces of dy; NULL: no sums. */
template <class E, bool GELU, bool WIDE>
static __global__ void __launch_bounds__(WARP *DEEP) backward_bias(float *partial, gradient_pass<E> p, int64_t rows) {
    struct walk<E> w(rows, p.width);
    float sum[PACK<E>] = {};
    if (w.column < p.width) {
        if (WIDE)
            rows_ahead<E, GELU>(w, p, sum);
        for (; w.row < w.end; w.row += w.step)
            one_row<E, GELU>(w, p, sum);
    }
    if (!partial)
        return;
    walk_sum(sum, w.lanes);
    if (w.first() && w.column < p.width)
        write(partial + (int64_t)blockIdx.y * p.width + w.column, sum, p.width - w.column);
}

template <class E> static bool is_wide(const gradient_pass<E> &p) {
    return ((uintptr_t)p.dy | (uintptr_t)p.pre) % sizeof(word) == 0 && p.width % PACK<E> == 0 &&
           p.stride % PACK<E> == 0;
}

status_t cuda_linear_backward_bias(const struct kernels *k, float *dbias, element_t *dy, const element_t *pre,
                                   const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    if (!pre && !dbias)
        return ST_OK;
    float *partial = dbias ? (float *)workspace : NULL;
    dim3 grid;
    TRY(by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        const gradient_pass<E> p = { (E *)dy, (const E *)pre, linear_stride(d), (int)d->out };
        const bool wide = is_wide(p);
        const auto kernel = pre ? (wide ? backward_bias<E, true, true> : backward_bias<E, true, false>)
                                : (wide ? backward_bias<E, false, true> : backward_bias<E, false, false>);
        grid = walk_grid<E>(d->rows, d->out);
        return launch(k, e, kernel, grid, dim3(WARP, DEEP), partial, p, d->rows);
    }));
    return dbias ? pieces_add(k, dbias, NULL, partial, grid.y, d->out, d->out, accumulate, e) : ST_OK;
}
