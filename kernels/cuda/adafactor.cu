/* Adafactor: optimizer steps that keep the second moment of a matrix as one mean per row and one per column.
 *
 * A matrix takes these kernels, in this order: row_means updates the running mean of each row and add_all averages
 * the rows; column_squares sums g^2 over pieces of the rows and column_means adds the pieces and updates the
 * columns; row_updates sums the squares of the update u, so that step_matrix can clip u and apply it. A vector keeps
 * a second moment for each element: step_vector does the whole step in one block. Beforehand, cuda_sum_squares
 * measures the parameter itself, because the step is relative to the size of the parameter.
 *
 * Every mean stays on the device, so that the host never waits and a captured step can be launched again. Each sum
 * has an order that the shape alone fixes. The file is compiled without contraction, as optimizer.cu is. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/seen.cuh"

enum { THREADS = 256 };

/* The workspace, in order: the totals that one kernel passes to the next; the sums of squares of the parameter's
 * chunks; the sum of u^2 of each row; the column sums of each piece of rows; the factor by which each column of u is
 * multiplied. */
struct totals {
    double parameter_squares, row_mean, update_squares;
    float beta2, rest; /* beta2 of the running means in this update, and 1 - beta2 */
};

struct matrix {
    int64_t rows;
    int columns;
    struct totals *totals;
    double *chunks, *row_update;
    float *column_sums, *column_factor; /* (pieces, columns), (columns) */
};

static int64_t chunk_count(int64_t n) { return (n + KERNELS_CHUNK - 1) / KERNELS_CHUNK; }

static int64_t column_pieces(int64_t rows, int64_t columns) { return piece_count(rows, walk_across<float>(columns)); }

static struct matrix matrix_of(void *workspace, int64_t rows, int64_t columns) {
    struct matrix m = { rows, (int)columns, (struct totals *)workspace, NULL, NULL, NULL, NULL };
    m.chunks = (double *)(m.totals + 1);
    m.row_update = m.chunks + chunk_count(rows * columns);
    m.column_sums = (float *)(m.row_update + rows);
    m.column_factor = m.column_sums + column_pieces(rows, columns) * columns;
    return m;
}

/* One block: *total = the sum of n numbers, divided by `by`. */
template <class T> static __global__ void add_all(double *total, const T *x, int64_t n, double by) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += (double)x[i];
    sum = block_sum(sum, 0);
    if (threadIdx.x == 0)
        *total = sum / by;
}

template <class T>
static status_t run_add_all(const struct kernels *k, double *total, const T *x, int64_t n, double by, struct err *e) {
    return launch(k, e, add_all<T>, dim3(1), dim3(THREADS * 4), total, x, n, by);
}

static __global__ void find_betas(struct totals *t, const struct update *update, double decay) {
    const double beta2 = 1 - pow((double)update->number, -decay);
    t->beta2 = (float)beta2;
    t->rest = (float)(1 - beta2);
}

/* The settings of a step. size() is the learning rate times the size of the parameter, after the clipping of u. */
struct step_settings {
    const double *learning_rate;
    double epsilon2, clip_threshold, weight_decay, n;
    float epsilon1;
    struct seen seen;
    __device__ __forceinline__ double size(const struct totals *t) const {
        const double rms = sqrt(t->parameter_squares), over = sqrt(t->update_squares) / clip_threshold;
        return *learning_rate * (rms > epsilon2 ? rms : epsilon2) / (over > 1 ? over : 1);
    }
    __device__ __forceinline__ float keep() const { return (float)(1 - *learning_rate * weight_decay); }
};

/* One block per row: row = beta2 row + (1 - beta2) mean(g^2 + epsilon1). */
static __global__ void __launch_bounds__(THREADS)
    row_means(float *row, const float *g, struct matrix m, struct step_settings o) {
    if (!o.seen.begin())
        return;
    const int64_t at = (int64_t)blockIdx.x * m.columns;
    double sum = 0;
    for (int c = (int)threadIdx.x; c < m.columns; c += THREADS) {
        const float x = o.seen.of(g[at + c]);
        sum += x * x + o.epsilon1;
    }
    sum = block_sum(sum, 0);
    if (threadIdx.x == 0)
        row[blockIdx.x] = m.totals->beta2 * row[blockIdx.x] + m.totals->rest * (float)(sum / m.columns);
}

static __global__ void __launch_bounds__(WARP *DEEP)
    column_squares(const float *g, struct matrix m, struct step_settings o) {
    if (!o.seen.begin())
        return;
    struct walk<float> w(m.rows, (int)m.columns);
    float sum[PACK<float>] = {};
    for (int64_t row = w.row; row < w.end && w.column < m.columns; row += w.step) {
        float x[PACK<float>];
        read(x, g + row * m.columns + w.column, m.columns - w.column);
#pragma unroll
        for (int j = 0; j < PACK<float>; j++)
            sum[j] += o.seen.of(x[j]) * o.seen.of(x[j]) + o.epsilon1;
    }
    walk_sum(sum, w.lanes);
    if (w.first() && w.column < m.columns)
        write(m.column_sums + (int64_t)blockIdx.y * m.columns + w.column, sum, m.columns - w.column);
}

static __global__ void __launch_bounds__(THREADS)
    column_means(float *column, struct matrix m, int64_t pieces, struct step_settings o) {
    if (!o.seen.begin())
        return;
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= m.columns)
        return;
    double sum = 0;
    for (int64_t i = 0; i < pieces; i++)
        sum += m.column_sums[i * m.columns + c];
    column[c] = m.totals->beta2 * column[c] + m.totals->rest * (float)(sum / (double)m.rows);
    m.column_factor[c] = 1 / sqrtf(column[c]);
}

/* One block per row: the sum of (g factor column[])^2, which is the sum of u^2. */
static __global__ void __launch_bounds__(THREADS)
    row_updates(const float *row, const float *g, struct matrix m, struct step_settings o) {
    if (!o.seen.begin())
        return;
    const int64_t at = (int64_t)blockIdx.x * m.columns;
    const float factor = (float)sqrt(m.totals->row_mean / (double)row[blockIdx.x]);
    double sum = 0;
    for (int c = (int)threadIdx.x; c < m.columns; c += THREADS) {
        const double u = o.seen.of(g[at + c]) * factor * m.column_factor[c];
        sum += u * u;
    }
    sum = block_sum(sum, 0);
    if (threadIdx.x == 0)
        m.row_update[blockIdx.x] = sum;
}

template <class E>
static __global__ void __launch_bounds__(THREADS)
    step_matrix(float *p, E *weight, const float *row, const float *g, struct matrix m, struct step_settings o) {
    if (!o.seen.begin())
        return;
    const int64_t at = (int64_t)blockIdx.x * m.columns;
    const float keep = o.keep(),
                factor = (float)(o.size(m.totals) * sqrt(m.totals->row_mean / (double)row[blockIdx.x]));
    for (int c = (int)threadIdx.x; c < m.columns; c += THREADS) {
        const float x = keep * p[at + c] - o.seen.of(g[at + c]) * factor * m.column_factor[c];
        p[at + c] = x;
        if (weight)
            weight[at + c] = element_of<E>(x);
    }
}

/* A vector keeps one second moment per element. Vectors are short, so one block is enough. */
template <class E>
static __global__ void __launch_bounds__(4 * THREADS)
    step_vector(float *p, E *weight, float *v, const float *g, int64_t n, struct totals *t, struct step_settings o) {
    if (!o.seen.begin())
        return;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const float x = o.seen.of(g[i]);
        v[i] = t->beta2 * v[i] + t->rest * (x * x + o.epsilon1);
        sum += (double)x * x / v[i];
    }
    struct totals whole = *t;
    whole.update_squares = block_sum(sum, 0) / (double)n;
    const float step = (float)o.size(&whole), keep = o.keep();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        p[i] = keep * p[i] - step * o.seen.of(g[i]) / sqrtf(v[i]);
        if (weight)
            weight[i] = element_of<E>(p[i]);
    }
}

static status_t run_matrix(const struct kernels *k, float *p, element_t *weight, float *row, float *column,
                           const float *g, const struct matrix *m, const struct step_settings *o, struct err *e) {
    const dim3 rows((unsigned)m->rows), columns((unsigned)((m->columns + THREADS - 1) / THREADS));
    const dim3 grid = walk_grid<float>(m->rows, m->columns);
    TRY(launch(k, e, row_means, rows, dim3(THREADS), row, g, *m, *o));
    TRY(run_add_all(k, &m->totals->row_mean, row, m->rows, (double)m->rows, e));
    TRY(launch(k, e, column_squares, grid, dim3(WARP, DEEP), g, *m, *o));
    TRY(launch(k, e, column_means, columns, dim3(THREADS), column, *m, (int64_t)grid.y, *o));
    TRY(launch(k, e, row_updates, rows, dim3(THREADS), row, g, *m, *o));
    TRY(run_add_all(k, &m->totals->update_squares, m->row_update, m->rows, o->n, e));
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, step_matrix<E>, rows, dim3(THREADS), p, (E *)weight, row, g, *m, *o);
    });
}

status_t cuda_adafactor(const struct kernels *k, float *p, element_t *weight, float *row, float *column, const float *g,
                        int64_t rows, int64_t columns, const struct adafactor *o, void *workspace, struct err *e) {
    const int64_t n = rows * columns;
    const struct matrix m = matrix_of(workspace, rows, columns);
    const struct step_settings s = {
        .learning_rate = o->learning_rate,
        .epsilon2 = o->epsilon2,
        .clip_threshold = o->clip_threshold,
        .weight_decay = o->weight_decay,
        .n = (double)n,
        .epsilon1 = (float)o->epsilon1,
        .seen = seen_of(o->update, o->clip_value),
    };
    TRY(launch(k, e, find_betas, dim3(1), dim3(1), m.totals, o->update, o->beta2_decay));
    const struct norm_span all = { m.chunks, p, n };
    TRY(cuda_sum_squares(k, &all, 1, e));
    TRY(run_add_all(k, &m.totals->parameter_squares, m.chunks, chunk_count(n), s.n, e));
    if (column)
        return run_matrix(k, p, weight, row, column, g, &m, &s, e);
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, step_vector<E>, dim3(1), dim3(4 * THREADS), p, (E *)weight, row, g, n, m.totals, s);
    });
}
