/* Batch norm of (rows, width), column by column, with an optional residual and ReLU.
 *
 * Forward has three kernels. add_moments sums x and x^2 over pieces of the rows, in double. find_moments adds the
 * pieces and turns mean, variance, gamma and beta into one line per column, y = x scale + shift. apply_line visits
 * the rows once more. cuda_batchnorm_apply uses given moments instead, in one kernel.
 *
 * Backward has the same structure: add_gradients sums g and g (x - mean) over pieces, find_gradients computes the
 * gradients of gamma and beta and the three factors of a line in g and x, and apply_gradients computes dx. Pieces
 * (piece.h) depend on the shape alone, so sums have the same bits on every device. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

#include <math.h>

enum { THREADS = 256 };
/* Blocks per multiprocessor, so that enough loads are in flight to keep the memory busy. */
enum { MIN_BLOCKS = 4 };

/* The workspace: partial sums (pieces, 2, width), in double in forward, then three floats for each column. */
struct workspace_layout {
    int64_t pieces;
    double *moments;
    float *sums;
    float *factor[3]; /* y = x factor[0] + factor[1]; dx = g factor[0] + x factor[1] + factor[2] */
};

/* The maximum over all precisions: narrow elements have wider blocks, hence more pieces. */
static int64_t max_pieces(const struct batchnorm_dims *d) { return piece_count(d->rows, walk_across<bf16>(d->width)); }

static struct workspace_layout workspace_layout_of(void *workspace, int64_t pieces, const struct batchnorm_dims *d) {
    struct workspace_layout r = { pieces, (double *)workspace, (float *)workspace, { NULL, NULL, NULL } };
    float *factors = (float *)(r.moments + 2 * max_pieces(d) * d->width);
    for (int i = 0; i < 3; i++)
        r.factor[i] = factors + i * d->width;
    return r;
}

static __device__ __forceinline__ float rstd_of(float variance, float epsilon) {
    return 1.0f / sqrtf(variance + epsilon);
}

static dim3 column_blocks(const struct batchnorm_dims *d) { return dim3((unsigned)((d->width + WARP - 1) / WARP)); }

/* Adds two sums of each piece over all pieces. The first of a column's DEEP threads gets the results. */
template <class T>
static __device__ __forceinline__ void add_pairs(T (&sum)[2], const T *pairs, int64_t pieces, int64_t column,
                                                 int64_t width) {
    if (column < width) {
#pragma unroll 4
        for (int64_t i = threadIdx.y; i < pieces; i += DEEP) {
            sum[0] += pairs[2 * i * width + column];
            sum[1] += pairs[(2 * i + 1) * width + column];
        }
    }
    walk_sum(sum);
}

/* --- forward -------------------------------------------------------------------------------------------------------*/
/* Sums and sums of squares are in double, which is exact enough for a single pass. */
template <class E>
static __global__ void __launch_bounds__(WARP *DEEP, MIN_BLOCKS)
    add_moments(double *moments, const E *x, int64_t rows, int width) {
    struct walk<E> w(rows, width);
    double sum[PACK<E>] = {}, squares[PACK<E>] = {};
    const int n_valid = width - w.column, step = w.step * width;
    x += w.row * width + w.column;
    for (int left = n_valid > 0 ? (int)(w.end - w.row) : 0; left > 0; left -= w.step, x += step) {
        float a[PACK<E>];
        read(a, x, n_valid);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++) {
            sum[j] += (double)a[j];
            squares[j] += (double)a[j] * a[j];
        }
    }
    walk_sum(sum, w.lanes);
    /* The second walk_sum uses the same shared memory as the first. */
    __syncthreads();
    walk_sum(squares, w.lanes);
    if (!w.first())
        return;
    for (int j = 0; j < PACK<E> && w.column + j < width; j++) {
        moments[(int64_t)blockIdx.y * 2 * width + w.column + j] = sum[j];
        moments[((int64_t)blockIdx.y * 2 + 1) * width + w.column + j] = squares[j];
    }
}

/* Stores the line of a column: y = x scale + shift. */
template <class E>
static __device__ __forceinline__ void put_line(const struct workspace_layout &r, int64_t c, float mean, float variance,
                                                const E *gamma, const E *beta, float epsilon) {
    const float scale = float_of(gamma[c]) * rstd_of(variance, epsilon);
    r.factor[0][c] = scale;
    r.factor[1][c] = float_of(beta[c]) - mean * scale;
}

template <class E>
static __global__ void __launch_bounds__(WARP *DEEP)
    find_moments(float *mean, float *variance, struct workspace_layout r, const E *gamma, const E *beta,
                 struct batchnorm_dims d) {
    const int64_t c = (int64_t)blockIdx.x * WARP + threadIdx.x;
    double sum[2] = {};
    add_pairs(sum, r.moments, r.pieces, c, d.width);
    if (threadIdx.y > 0 || c >= d.width)
        return;
    const double m = sum[0] / (double)d.rows, v = sum[1] / (double)d.rows - m * m;
    mean[c] = (float)m;
    variance[c] = v > 0 ? (float)v : 0;
    put_line(r, c, mean[c], variance[c], gamma, beta, d.epsilon);
}

template <class E>
static __global__ void __launch_bounds__(WARP *DEEP)
    apply_line(E *y, const E *x, const E *residual, struct workspace_layout r, int64_t rows, int width, bool relu) {
    struct walk<E> w(rows, width);
    if (w.column >= width)
        return;
    float scale[PACK<E>], shift[PACK<E>];
    read(scale, r.factor[0] + w.column, width - w.column);
    read(shift, r.factor[1] + w.column, width - w.column);
    for (int64_t row = w.row; row < w.end; row += w.step) {
        const int64_t at = row * width + w.column;
        float a[PACK<E>], more[PACK<E>] = {};
        read(a, x + at, width - w.column);
        if (residual)
            read(more, residual + at, width - w.column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++) {
            a[j] = a[j] * scale[j] + shift[j] + more[j];
            a[j] = relu && a[j] < 0 ? 0.0f : a[j];
        }
        write(y + at, a, width - w.column);
    }
}

status_t cuda_batchnorm_forward(const struct kernels *k, element_t *y, float *mean, float *variance, const element_t *x,
                                const element_t *residual, const element_t *gamma, const element_t *beta,
                                const struct batchnorm_dims *d, void *workspace, struct err *e) {
    return by_precision(k, [&](auto zero) -> status_t {
        typedef decltype(zero) E;
        const dim3 grid = walk_grid<E>(d->rows, d->width), block(WARP, DEEP);
        const struct workspace_layout r = workspace_layout_of(workspace, grid.y, d);
        TRY(launch(k, e, add_moments<E>, grid, block, r.moments, (const E *)x, d->rows, (int)d->width));
        TRY(launch(k, e, find_moments<E>, column_blocks(d), block, mean, variance, r, (const E *)gamma, (const E *)beta,
                   *d));
        return launch(k, e, apply_line<E>, grid, block, (E *)y, (const E *)x, (const E *)residual, r, d->rows,
                      (int)d->width, d->relu);
    });
}

/* With given moments: subtracts the mean first, because a line x scale + shift would lose the difference to
 * rounding. */
template <class E>
static __global__ void __launch_bounds__(THREADS)
    apply_moments(E *y, const E *x, const E *residual, const E *gamma, const E *beta, const float *mean,
                  const float *variance, struct batchnorm_dims d) {
    for (int64_t at = first_pack<1>(); at < d.rows * d.width; at += pack_stride<1>()) {
        const int64_t c = at % d.width;
        const float n = (float_of(x[at]) - mean[c]) * rstd_of(variance[c], d.epsilon);
        const float a = n * float_of(gamma[c]) + float_of(beta[c]) + (residual ? float_of(residual[at]) : 0);
        y[at] = element_of<E>(d.relu && a < 0 ? 0.0f : a);
    }
}

status_t cuda_batchnorm_apply(const struct kernels *k, element_t *y, const element_t *x, const element_t *residual,
                              const element_t *gamma, const element_t *beta, const float *mean, const float *variance,
                              const struct batchnorm_dims *d, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, apply_moments<E>, cuda_grid(k, d->rows * d->width, THREADS), dim3(THREADS), (E *)y,
                      (const E *)x, (const E *)residual, (const E *)gamma, (const E *)beta, mean, variance, *d);
    });
}

/* --- backward ------------------------------------------------------------------------------------------------------*/
/* g = dy where y > 0 or there is no relu, else 0. */
template <class E>
static __device__ __forceinline__ void load_gradient(float (&g)[PACK<E>], const E *dy, const E *y, bool relu,
                                                     int n_valid) {
    read(g, dy, n_valid);
    if (!relu)
        return;
    float a[PACK<E>];
    read(a, y, n_valid);
#pragma unroll
    for (int j = 0; j < PACK<E>; j++)
        g[j] = a[j] > 0 ? g[j] : 0.0f;
}

/* The sums of g and g (x - mean) of each column, by piece. If the residual needs g, g is also stored in d_residual,
 * and the last kernel reads it there instead of dy and y. */
template <class E>
static __global__ void __launch_bounds__(WARP *DEEP, MIN_BLOCKS)
    add_gradients(float *sums, E *d_residual, const E *dy, const E *x, const E *y, const float *mean,
                  struct batchnorm_dims d) {
    const int width = (int)d.width;
    struct walk<E> w(d.rows, width);
    const int n_valid = width - w.column;
    float sum[2 * PACK<E>] = {}, center[PACK<E>] = {};
    if (n_valid > 0)
        read(center, mean + w.column, n_valid);
    for (int64_t row = w.row; row < w.end && n_valid > 0; row += w.step) {
        const int64_t at = row * width + w.column;
        float g[PACK<E>], a[PACK<E>];
        load_gradient(g, dy + at, y + at, d.relu, n_valid);
        read(a, x + at, n_valid);
        if (d_residual)
            write(d_residual + at, g, n_valid);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++) {
            sum[j] += g[j];
            sum[PACK<E> + j] += g[j] * (a[j] - center[j]);
        }
    }
    walk_sum(sum, w.lanes);
    if (!w.first())
        return;
    for (int j = 0; j < PACK<E> && j < n_valid; j++) {
        sums[(int64_t)blockIdx.y * 2 * width + w.column + j] = sum[j];
        sums[((int64_t)blockIdx.y * 2 + 1) * width + w.column + j] = sum[PACK<E> + j];
    }
}

struct parameter_gradients {
    float *gamma, *beta, *measured_mean, *measured_variance;
    bool accumulate;
    __device__ __forceinline__ void put(float *to, float value) const {
        if (to)
            *to = accumulate ? *to + value : value;
    }
};

/* dx = gamma rstd (g - avg(g) - n avg(g n)) with n = (x - mean) rstd, as three factors of a line in g and x. */
template <class E>
static __global__ void __launch_bounds__(WARP *DEEP)
    find_gradients(struct parameter_gradients to, struct workspace_layout r, const float *mean, const float *variance,
                   const E *gamma, struct batchnorm_dims d) {
    const int64_t c = (int64_t)blockIdx.x * WARP + threadIdx.x;
    float sum[2] = {};
    add_pairs(sum, r.sums, r.pieces, c, d.width);
    if (threadIdx.y > 0 || c >= d.width)
        return;
    const float rows = (float)d.rows, rstd = rstd_of(variance[c], d.epsilon), sum_g = sum[0], sum_gn = sum[1] * rstd,
                scale = float_of(gamma[c]) * rstd;
    const float unbiased = d.rows > 1 ? (float)((double)d.rows / (double)(d.rows - 1)) : 1;
    r.factor[0][c] = scale;
    r.factor[1][c] = -scale * rstd * (sum_gn / rows);
    r.factor[2][c] = -scale * (sum_g / rows) - mean[c] * r.factor[1][c];
    to.put(to.gamma + c, sum_gn);
    to.put(to.beta + c, sum_g);
    to.put(to.measured_mean ? to.measured_mean + c : NULL, mean[c]);
    to.put(to.measured_variance ? to.measured_variance + c : NULL, variance[c] * unbiased);
}

template <class E>
static __global__ void __launch_bounds__(WARP *DEEP)
    apply_gradients(E *dx, const E *dy, const E *x, const E *y, struct workspace_layout r, int64_t rows, int width,
                    bool relu) {
    struct walk<E> w(rows, width);
    const int n_valid = width - w.column;
    if (n_valid <= 0)
        return;
    float of_g[PACK<E>], of_x[PACK<E>], one[PACK<E>];
    read(of_g, r.factor[0] + w.column, n_valid);
    read(of_x, r.factor[1] + w.column, n_valid);
    read(one, r.factor[2] + w.column, n_valid);
    for (int64_t row = w.row; row < w.end; row += w.step) {
        const int64_t at = row * width + w.column;
        float g[PACK<E>], a[PACK<E>];
        load_gradient(g, dy + at, y + at, relu, n_valid);
        read(a, x + at, n_valid);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            a[j] = g[j] * of_g[j] + a[j] * of_x[j] + one[j];
        write(dx + at, a, n_valid);
    }
}

status_t cuda_batchnorm_backward(const struct kernels *k, element_t *dx, element_t *d_residual, float *dgamma,
                                 float *dbeta, float *measured_mean, float *measured_variance, const element_t *dy,
                                 const element_t *x, const element_t *y, const float *mean, const float *variance,
                                 const element_t *gamma, const struct batchnorm_dims *d, bool accumulate,
                                 void *workspace, struct err *e) {
    const struct parameter_gradients to = { dgamma, dbeta, measured_mean, measured_variance, accumulate };
    return by_precision(k, [&](auto zero) -> status_t {
        typedef decltype(zero) E;
        const dim3 grid = walk_grid<E>(d->rows, d->width), block(WARP, DEEP);
        const struct workspace_layout r = workspace_layout_of(workspace, grid.y, d);
        TRY(launch(k, e, add_gradients<E>, grid, block, r.sums, (E *)d_residual, (const E *)dy, (const E *)x,
                   (const E *)y, mean, *d));
        TRY(launch(k, e, find_gradients<E>, column_blocks(d), block, to, r, mean, variance, (const E *)gamma, *d));
        return launch(k, e, apply_gradients<E>, grid, block, (E *)dx, (const E *)(d_residual ? d_residual : dy),
                      (const E *)x, (const E *)y, r, d->rows, (int)d->width, d->relu && !d_residual);
    });
}
