/* Layer norm and RMS norm, which has no mean and no beta, with an optional residual branch.
 *
 * Forward: a warp has a row if the row fits in its registers, otherwise a block has it. Each thread keeps CACHED packs
 * of the row in registers, so that memory is read once for the three passes (sum, squares of x - mean, result). CACHED
 * is 0 for a row that is too wide; each pass then reads the row again.
 *
 * Backward: each warp or block has a piece of the rows and visits them in order. Per row it computes two averages
 * and dx, and it keeps the piece's share of dgamma and dbeta in registers too. A second kernel (pieces.h) adds the
 * shares of all pieces in order, so that no sum needs atomic additions or depends on the device. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pieces.h"
#include "kernels/cuda/reduce.cuh"

enum { THREADS = 256, MAX_CACHED = 4 };

template <int N> struct cached { static constexpr int count = N; };

/* Calls f with the number of packs of a row that a thread keeps, and the number of threads of a row. */
template <class E, class F> static status_t by_width(int64_t width, F f) {
    const int64_t packs = (width + PACK<E> - 1) / PACK<E>;
    if (packs <= THREADS)
        return f(cached<1>(), (unsigned)((packs + WARP - 1) / WARP * WARP));
    if (packs <= MAX_CACHED * THREADS)
        return f(cached<MAX_CACHED>(), (unsigned)((packs + MAX_CACHED * WARP - 1) / (MAX_CACHED * WARP) * WARP));
    return f(cached<0>(), (unsigned)THREADS);
}

static dim3 block_of(unsigned threads) { return dim3(threads, threads == WARP ? THREADS / WARP : 1); }

/* Calls f(i, column) for each pack of a row that belongs to this thread; i is the index of its registers. */
template <class E, int CACHED, class F> static __device__ __forceinline__ void for_packs(int width, F f) {
    if constexpr (CACHED > 0) {
#pragma unroll
        for (int i = 0; i < CACHED; i++) {
            const int column = (int)(threadIdx.x + i * blockDim.x) * PACK<E>;
            if (column < width)
                f(i, column);
        }
    } else {
        for (int column = (int)threadIdx.x * PACK<E>; column < width; column += (int)blockDim.x * PACK<E>)
            f(0, column);
    }
}

template <class E, int CACHED> struct packs { float at[CACHED > 0 ? CACHED : 1][PACK<E>]; };

/* Stores a row's x + branch in v and r, or x alone in v. Returns this thread's part of their sum. */
template <class E, int CACHED>
static __device__ __forceinline__ float load_row(struct packs<E, CACHED> &v, E *r, const E *x, const E *branch,
                                                 int width) {
    float sum = 0;
    for_packs<E, CACHED>(width, [&](int i, int column) {
        read(v.at[i], x + column, width - column);
        if (branch) {
            float b[PACK<E>];
            read(b, branch + column, width - column);
#pragma unroll
            for (int j = 0; j < PACK<E>; j++)
                /* Rounds the sum as it is stored in r, so that backward, which reads r, sees the same values. */
                v.at[i][j] = float_of(element_of<E>(v.at[i][j] + b[j]));
            write(r + column, v.at[i], width - column);
        }
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            sum += v.at[i][j];
    });
    return sum;
}

/* mean NULL: RMS norm. */
template <class E, int CACHED>
static __global__ void __launch_bounds__(THREADS)
    norm_forward(E *y, E *r, float *mean, float *rstd, const E *x, const E *branch, const E *gamma, const E *beta,
                 int64_t rows, int width, float epsilon) {
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, at = row * width;
    if (row >= rows)
        return;
    struct packs<E, CACHED> v;
    const float sum = load_row<E, CACHED>(v, r + at, x + at, branch ? branch + at : NULL, width);
    const E *normed = branch ? r + at : x + at;
    const float center = mean ? block_sum(sum, 0) / (float)width : 0;
    float squares = 0;
    for_packs<E, CACHED>(width, [&](int i, int column) {
        if (CACHED == 0)
            read(v.at[i], normed + column, width - column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            /* Beyond the row, x is 0 but x - mean is not, so these numbers are left out. */
            squares += column + j < width ? (v.at[i][j] - center) * (v.at[i][j] - center) : 0;
    });
    const float scale = 1.0f / sqrtf(block_sum(squares, 1) / (float)width + epsilon);
    for_packs<E, CACHED>(width, [&](int i, int column) {
        float g[PACK<E>], b[PACK<E>] = {};
        if (CACHED == 0)
            read(v.at[i], normed + column, width - column);
        read(g, gamma + column, width - column);
        if (beta)
            read(b, beta + column, width - column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            v.at[i][j] = (v.at[i][j] - center) * scale * g[j] + b[j];
        write(y + at + column, v.at[i], width - column);
    });
    if (threadIdx.x == 0) {
        if (mean)
            mean[row] = center;
        rstd[row] = scale;
    }
}

static status_t forward(const struct kernels *k, element_t *y, element_t *r, float *mean, float *rstd,
                        const element_t *x, const element_t *branch, const element_t *gamma, const element_t *beta,
                        int64_t rows, int64_t width, float epsilon, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return by_width<E>(width, [&](auto cached, unsigned threads) {
            const dim3 block = block_of(threads);
            return launch(k, e, norm_forward<E, cached.count>, dim3((unsigned)((rows + block.y - 1) / block.y)), block,
                          (E *)y, (E *)r, mean, rstd, (const E *)x, (const E *)branch, (const E *)gamma,
                          (const E *)beta, rows, (int)width, epsilon);
        });
    });
}

status_t cuda_layernorm_forward(const struct kernels *k, element_t *y, element_t *r, float *mean, float *rstd,
                                const element_t *x, const element_t *branch, const element_t *gamma,
                                const element_t *beta, int64_t rows, int64_t width, float epsilon, struct err *e) {
    return forward(k, y, r, mean, rstd, x, branch, gamma, beta, rows, width, epsilon, e);
}

status_t cuda_rmsnorm_forward(const struct kernels *k, element_t *y, element_t *r, float *rstd, const element_t *x,
                              const element_t *branch, const element_t *gamma, int64_t rows, int64_t width,
                              float epsilon, struct err *e) {
    return forward(k, y, r, NULL, rstd, x, branch, gamma, NULL, rows, width, epsilon, e);
}

/* One thread's part of a row in backward: n = (x - mean) rstd and h = dy gamma. */
template <class E, int CACHED> struct row_gradient { struct packs<E, CACHED> n, h; };

template <class E, int CACHED>
static __device__ __forceinline__ void load_gradient(struct row_gradient<E, CACHED> &a, float (&dy)[PACK<E>], int i,
                                                     const E *dy_row, const E *x_row, const E *gamma, float mean,
                                                     float rstd, int column, int width) {
    float g[PACK<E>];
    read(a.n.at[i], x_row + column, width - column);
    read(dy, dy_row + column, width - column);
    read(g, gamma + column, width - column);
#pragma unroll
    for (int j = 0; j < PACK<E>; j++) {
        a.n.at[i][j] = (a.n.at[i][j] - mean) * rstd;
        a.h.at[i][j] = dy[j] * g[j];
    }
}

/* A piece's share of dgamma and dbeta. For rows that are too wide for registers, `partial` accumulates it instead. */
template <class E, int CACHED> struct share { struct packs<E, CACHED> gamma, beta; };

template <int N> static __device__ __forceinline__ void add_to(float *sum, const float (&x)[N], int n_valid) {
    for (int j = 0; j < N && j < n_valid; j++)
        sum[j] += x[j];
}

/* dx = rstd (h - avg(h) - n avg(h n)) + addend. RMS norm, which has no mean, does not subtract avg(h). */
template <class E, int CACHED>
static __device__ __forceinline__ void backward_row(E *dx, struct share<E, CACHED> &s, float *partial, const E *dy,
                                                    const E *addend, const E *x, const float *mean, float rstd,
                                                    const E *gamma, int width, int turn) {
    const float center = mean ? *mean : 0;
    struct row_gradient<E, CACHED> a;
    float sums[2] = { 0, 0 }, d[PACK<E>];
    for_packs<E, CACHED>(width, [&](int i, int column) {
        load_gradient<E, CACHED>(a, d, i, dy, x, gamma, center, rstd, column, width);
        float dn[PACK<E>];
#pragma unroll
        for (int j = 0; j < PACK<E>; j++) {
            sums[0] += a.h.at[i][j];
            sums[1] += a.h.at[i][j] * a.n.at[i][j];
            dn[j] = d[j] * a.n.at[i][j];
            s.gamma.at[i][j] += dn[j];
            s.beta.at[i][j] += d[j];
        }
        if (CACHED == 0) {
            add_to(partial + column, dn, width - column);
            add_to(partial + width + column, d, width - column);
        }
    });
    block_reduce(sums, add_up(), turn);
    const float avg_h = mean ? sums[0] / (float)width : 0, avg_hn = sums[1] / (float)width;
    for_packs<E, CACHED>(width, [&](int i, int column) {
        float more[PACK<E>] = {};
        if (CACHED == 0)
            load_gradient<E, CACHED>(a, d, i, dy, x, gamma, center, rstd, column, width);
        if (addend)
            read(more, addend + column, width - column);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            a.h.at[i][j] = rstd * (a.h.at[i][j] - avg_h - a.n.at[i][j] * avg_hn) + more[j];
        write(dx + column, a.h.at[i], width - column);
    });
}

/* partial (pieces, 2, width) receives the shares of dgamma and dbeta. */
template <class E, int CACHED>
static __global__ void __launch_bounds__(THREADS, CACHED == 1 ? 3 : 1)
    norm_backward(E *dx, float *partial, const E *dy, const E *addend, const E *x, const float *mean, const float *rstd,
                  const E *gamma, int64_t rows, int width) {
    const int64_t piece = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, pieces = piece_count(rows, 1);
    if (piece >= pieces)
        return;
    struct share<E, CACHED> s = {};
    float *own = partial + piece * 2 * width;
    if (CACHED == 0)
        for (int c = 0; c < 2; c++)
            for_packs<E, CACHED>(width, [&](int i, int column) {
                for (int j = 0; j < PACK<E> && column + j < width; j++)
                    own[c * width + column + j] = s.gamma.at[i][j];
            });
    int turn = 0;
    for (int64_t row = piece_begin(rows, piece, pieces); row < piece_begin(rows, piece + 1, pieces); row++) {
        const int64_t at = row * width;
        backward_row<E, CACHED>(dx + at, s, own, dy + at, addend ? addend + at : NULL, x + at, mean ? mean + row : NULL,
                                rstd[row], gamma, width, turn++);
    }
    if (CACHED > 0)
        for_packs<E, CACHED>(width, [&](int i, int column) {
            write(own + column, s.gamma.at[i], width - column);
            write(own + width + column, s.beta.at[i], width - column);
        });
}

static status_t backward(const struct kernels *k, element_t *dx, float *dgamma, float *dbeta, const element_t *dy,
                         const element_t *addend, const element_t *x, const float *mean, const float *rstd,
                         const element_t *gamma, int64_t rows, int64_t width, bool accumulate, void *workspace,
                         struct err *e) {
    const int64_t pieces = piece_count(rows, 1);
    float *partial = (float *)workspace;
    TRY(by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return by_width<E>(width, [&](auto cached, unsigned threads) {
            const dim3 block = block_of(threads);
            return launch(k, e, norm_backward<E, cached.count>, dim3((unsigned)((pieces + block.y - 1) / block.y)),
                          block, (E *)dx, partial, (const E *)dy, (const E *)addend, (const E *)x, mean, rstd,
                          (const E *)gamma, rows, (int)width);
        });
    }));
    return pieces_add(k, dgamma, dbeta, partial, pieces, 2 * width, width, accumulate, e);
}

status_t cuda_layernorm_backward(const struct kernels *k, element_t *dx, float *dgamma, float *dbeta,
                                 const element_t *dy, const element_t *addend, const element_t *x, const float *mean,
                                 const float *rstd, const element_t *gamma, int64_t rows, int64_t width,
                                 bool accumulate, void *workspace, struct err *e) {
    return backward(k, dx, dgamma, dbeta, dy, addend, x, mean, rstd, gamma, rows, width, accumulate, workspace, e);
}

status_t cuda_rmsnorm_backward(const struct kernels *k, element_t *dx, float *dgamma, const element_t *dy,
                               const element_t *addend, const element_t *x, const float *rstd, const element_t *gamma,
                               int64_t rows, int64_t width, bool accumulate, void *workspace, struct err *e) {
    return backward(k, dx, dgamma, NULL, dy, addend, x, NULL, rstd, gamma, rows, width, accumulate, workspace, e);
}
