/* Adafactor for one parameter: a matrix with one running mean of squares per row and per column, or a vector.
 *
 * A step of a matrix has four phases, after the root mean square of the parameter is computed:
 *   1. add_squares: the sums of g^2 + epsilon over rows and columns; the running means of the rows
 *   2. add_columns: the running means of the columns, then their inverse square roots
 *   3. update_mean_square: the mean square of the update u, which step_size needs to clip u
 *   4. apply: p = keep p - step u
 *
 * Rows are divided into pieces by shape alone (piece.h), so that the bits do not depend on the number of threads.
 * Workspace: the sums of squares of the parameter's chunks, one `partial` for each piece, and the sums of the columns
 * (pieces, columns). */
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/piece.h"

struct partial {
    double u_squares, row_sum;
    char apart[48]; /* fills a cache line: threads write neighbours at the same time */
};

struct matrix {
    int64_t rows, columns, pieces;
    struct partial *partial;
    float *column_sums; /* (pieces, columns); afterwards its first row holds the factors of the columns of u */
};

static size_t partial_bytes(int64_t rows, int64_t columns) {
    return (size_t)piece_count(rows) * (sizeof(struct partial) + (size_t)columns * sizeof(float));
}

/* The factor of the old value in the running means. It grows with the number of the update. */
static double beta2_of(const struct adafactor *o) { return 1 - pow((double)o->update->number, -o->beta2_decay); }

static int64_t chunk_count(int64_t n) { return (n + KERNELS_CHUNK - 1) / KERNELS_CHUNK; }

size_t adafactor_workspace(const struct kernels *k, int64_t rows, int64_t columns) {
    (void)k;
    return (size_t)chunk_count(rows * columns) * sizeof(double) + partial_bytes(rows, columns);
}

static status_t root_mean_square(const struct kernels *k, double *ret, const float *p, int64_t n, double *sums,
                                 struct err *e) {
    TRY(k->sum_squares(k, &(struct norm_span){ sums, p, n }, 1, e));
    double sum = 0;
    for (int64_t i = 0; i < chunk_count(n); i++)
        sum += sums[i];
    *ret = sqrt(sum / (double)n);
    return ST_OK;
}

static void add_squares(const struct kernels *k, const struct adafactor_rows *by, const struct matrix *m, float *row,
                        const float *g, struct seen s, const struct adafactor *o) {
    const float keep = (float)beta2_of(o), rest = (float)(1 - beta2_of(o)), epsilon = (float)o->epsilon1;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < m->pieces; i++) {
        float *columns = m->column_sums + i * m->columns;
        for (int64_t c = 0; c < m->columns; c++)
            columns[c] = 0;
        double sum = 0;
        for (int64_t r = piece_begin(m->rows, i); r < piece_begin(m->rows, i + 1); r++) {
            const double mean = by->squares(columns, g + r * m->columns, m->columns, s, epsilon) / (double)m->columns;
            row[r] = keep * row[r] + rest * (float)mean;
            sum += row[r];
        }
        m->partial[i].row_sum = sum;
    }
}

static void add_columns(const struct kernels *k, const struct matrix *m, float *column, const struct adafactor *o) {
    const float keep = (float)beta2_of(o), rest = (float)(1 - beta2_of(o));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t c = 0; c < m->columns; c++) {
        double sum = 0;
        for (int64_t i = 0; i < m->pieces; i++)
            sum += m->column_sums[i * m->columns + c];
        column[c] = keep * column[c] + rest * (float)(sum / (double)m->rows);
        m->column_sums[c] = 1 / sqrtf(column[c]);
    }
}

static double row_mean(const struct matrix *m) {
    double sum = 0;
    for (int64_t i = 0; i < m->pieces; i++)
        sum += m->partial[i].row_sum;
    return sum / (double)m->rows;
}

static double update_mean_square(const struct kernels *k, const struct adafactor_rows *by, const struct matrix *m,
                                 const float *row, double mean, const float *g, struct seen s) {
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < m->pieces; i++) {
        double sum = 0;
        for (int64_t r = piece_begin(m->rows, i); r < piece_begin(m->rows, i + 1); r++)
            sum += by->update_squares(g + r * m->columns, m->column_sums, (float)sqrt(mean / (double)row[r]),
                                      m->columns, s);
        m->partial[i].u_squares = sum;
    }
    double sum = 0;
    for (int64_t i = 0; i < m->pieces; i++)
        sum += m->partial[i].u_squares;
    return sum / ((double)m->rows * (double)m->columns);
}

/* The factor of the step: the learning rate times the size of the parameter, which is at least epsilon2. If the root
 * mean square of u exceeds the clip threshold, the factor is divided by their ratio. */
static double step_size(const struct adafactor *o, double parameter_rms, double update_mean_square) {
    const double over = sqrt(update_mean_square) / o->clip_threshold;
    const double size = parameter_rms > o->epsilon2 ? parameter_rms : o->epsilon2;
    return *o->learning_rate * size / (over > 1 ? over : 1);
}

/* The second moment of a vector has one value per element. One thread is enough, because vectors are short. */
static void step_vector(float *p, float *v, const float *g, int64_t n, double parameter_rms, struct seen s,
                        const struct adafactor *o) {
    const float keep_v = (float)beta2_of(o), rest = (float)(1 - beta2_of(o)), epsilon = (float)o->epsilon1;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const float x = seen(g[i], s);
        v[i] = keep_v * v[i] + rest * (x * x + epsilon);
        sum += (double)x * x / v[i];
    }
    const float step = (float)step_size(o, parameter_rms, sum / (double)n);
    const float keep = (float)(1 - *o->learning_rate * o->weight_decay);
    for (int64_t i = 0; i < n; i++)
        p[i] = keep * p[i] - step * seen(g[i], s) / sqrtf(v[i]);
}

status_t adafactor_step(const struct kernels *k, float *p, element_t *weight, float *row, float *column, const float *g,
                        int64_t rows, int64_t columns, const struct adafactor *o, void *workspace, struct err *e) {
    if (o->update->skip != STEP_APPLIED)
        return ST_OK;
    const struct adafactor_rows *by = cpu_of(k)->adafactor_rows;
    const struct seen s = seen_of(o->update, o->clip_value);
    double rms = 0;
    TRY(root_mean_square(k, &rms, p, rows * columns, workspace, e));
    if (!column) {
        step_vector(p, row, g, rows * columns, rms, s, o);
        weight_round(k, weight, p, 0, rows * columns);
        return ST_OK;
    }
    struct matrix m = { .rows = rows, .columns = columns, .pieces = piece_count(rows) };
    m.partial = (struct partial *)(void *)((double *)workspace + chunk_count(rows * columns));
    m.column_sums = (float *)(void *)(m.partial + m.pieces);
    add_squares(k, by, &m, row, g, s, o);
    add_columns(k, &m, column, o);
    const double mean = row_mean(&m);
    const double step = step_size(o, rms, update_mean_square(k, by, &m, row, mean, g, s));
    const float keep = (float)(1 - *o->learning_rate * o->weight_decay);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = r * columns;
        by->apply(p + at, g + at, m.column_sums, (float)(step * sqrt(mean / (double)row[r])), keep, columns, s);
        weight_round(k, weight, p, at, columns);
    }
    return ST_OK;
}
