/* The optimizers in portable C: the readable reference, and the parts that have no vector form.
 *
 * Each loop reads the gradient through seen() (scale and clip), then updates the states and the parameter, in fp32.
 * Coefficients are computed in double, once per call or span. A span is divided into blocks of OPTIMIZER_BLOCK
 * elements; after each block the parameters are rounded to the weights. If an update is skipped, nothing changes.
 *
 * running_mean updates running batch statistics from the sum of `parts` measurements. normalise divides a matrix by its
 * norm, or by min_norm if that is larger. The sums of squares of the chunks are added in their order, so that the
 * number of threads does not change bits. */
#include "kernels/cpu/optimizer.h"

static status_t adamw(const struct kernels *k, const struct span *spans, int n_spans, const struct adamw *o,
                      struct err *e) {
    (void)e;
    if (o->update->skip != STEP_APPLIED)
        return ST_OK;
    const struct seen see = seen_of(o->update, o->clip_value);
    const float beta1 = (float)o->beta1, rest1 = (float)(1.0 - o->beta1);
    const float beta2 = (float)o->beta2, rest2 = (float)(1.0 - o->beta2), epsilon = (float)o->epsilon;
    const float step = (float)(*o->learning_rate / (1.0 - pow(o->beta1, (double)o->update->number)));
    const float correction = (float)sqrt(1.0 - pow(o->beta2, (double)o->update->number));
    for (const struct span *s = spans; s < spans + n_spans; s++) {
        const float keep = (float)(1.0 - *o->learning_rate * span_decay(s, o->weight_decay));
#pragma omp parallel for num_threads(k->threads) schedule(static)
        for (int64_t at = 0; at < s->n; at += OPTIMIZER_BLOCK) {
            for (int64_t i = at; i < at + optimizer_block(at, s->n); i++) {
                const float gi = seen(s->x[i], see);
                s->m[i] = beta1 * s->m[i] + rest1 * gi;
                s->v[i] = beta2 * s->v[i] + rest2 * gi * gi;
                s->p[i] = keep * s->p[i] - step * s->m[i] / (sqrtf(s->v[i]) / correction + epsilon);
            }
            weight_round(k, s->weight, s->p, at, optimizer_block(at, s->n));
        }
    }
    return ST_OK;
}

static status_t sgd(const struct kernels *k, const struct span *spans, int n_spans, const struct sgd *o,
                    struct err *e) {
    (void)e;
    if (o->update->skip != STEP_APPLIED)
        return ST_OK;
    const struct seen see = seen_of(o->update, o->clip_value);
    const float rate = (float)*o->learning_rate, momentum = (float)o->momentum;
    for (const struct span *s = spans; s < spans + n_spans; s++) {
        const float decay = (float)span_decay(s, o->weight_decay);
#pragma omp parallel for num_threads(k->threads) schedule(static)
        for (int64_t at = 0; at < s->n; at += OPTIMIZER_BLOCK) {
            for (int64_t i = at; i < at + optimizer_block(at, s->n); i++) {
                const float gi = seen(s->x[i], see) + decay * s->p[i];
                s->m[i] = momentum * s->m[i] + gi;
                s->p[i] -= rate * (o->nesterov ? gi + momentum * s->m[i] : s->m[i]);
            }
            weight_round(k, s->weight, s->p, at, optimizer_block(at, s->n));
        }
    }
    return ST_OK;
}

static float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }

static status_t lion(const struct kernels *k, const struct span *spans, int n_spans, const struct lion *o,
                     struct err *e) {
    (void)e;
    if (o->update->skip != STEP_APPLIED)
        return ST_OK;
    const struct seen see = seen_of(o->update, o->clip_value);
    const float beta1 = (float)o->beta1, rest1 = (float)(1.0 - o->beta1);
    const float beta2 = (float)o->beta2, rest2 = (float)(1.0 - o->beta2), rate = (float)*o->learning_rate;
    for (const struct span *s = spans; s < spans + n_spans; s++) {
        const float keep = (float)(1.0 - *o->learning_rate * span_decay(s, o->weight_decay));
#pragma omp parallel for num_threads(k->threads) schedule(static)
        for (int64_t at = 0; at < s->n; at += OPTIMIZER_BLOCK) {
            for (int64_t i = at; i < at + optimizer_block(at, s->n); i++) {
                const float gi = seen(s->x[i], see);
                s->p[i] = keep * s->p[i] - rate * sign(beta1 * s->m[i] + rest1 * gi);
                s->m[i] = beta2 * s->m[i] + rest2 * gi;
            }
            weight_round(k, s->weight, s->p, at, optimizer_block(at, s->n));
        }
    }
    return ST_OK;
}

static status_t momentum(const struct kernels *k, float *u, float *m, const float *g, int64_t n,
                         const struct momentum *o, struct err *e) {
    (void)e;
    if (o->update->skip != STEP_APPLIED)
        return ST_OK;
    const struct seen s = seen_of(o->update, o->clip_value);
    const float keep = (float)o->momentum, rest = (float)(1.0 - o->momentum);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float gi = rest * seen(g[i], s);
        m[i] = keep * m[i] + gi;
        u[i] = o->nesterov ? keep * m[i] + gi : m[i];
    }
    return ST_OK;
}

static void step_along(const struct kernels *k, float *p, element_t *weight, const float *x, int64_t n, float keep,
                       float by) {
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < n; at += OPTIMIZER_BLOCK) {
        for (int64_t i = at; i < at + optimizer_block(at, n); i++)
            p[i] = keep * p[i] + by * x[i];
        weight_round(k, weight, p, at, optimizer_block(at, n));
    }
}

static status_t running_mean(const struct kernels *k, const struct span *spans, int n_spans, double momentum,
                             int64_t parts, const struct update *update, struct err *e) {
    (void)e;
    if (update->skip != STEP_APPLIED)
        return ST_OK;
    for (const struct span *s = spans; s < spans + n_spans; s++) {
        for (int64_t i = 0; i < s->n; i++)
            s->p[i] = (float)((double)s->p[i] + momentum * ((double)s->x[i] / (double)parts - (double)s->p[i]));
        weight_round(k, s->weight, s->p, 0, s->n);
    }
    return ST_OK;
}

static status_t normalise(const struct kernels *k, float *x, int64_t n, double min_norm, double *workspace,
                          struct err *e) {
    double sum = 0;
    TRY(k->sum_squares(k, &(struct norm_span){ workspace, x, n }, 1, e));
    for (int64_t i = 0; i * KERNELS_CHUNK < n; i++)
        sum += workspace[i];
    const double norm = sqrt(sum);
    return k->scale_add(k, &(struct span){ .n = n, .p = x, .x = x }, 1, 1 / (norm > min_norm ? norm : min_norm), 0,
                        NULL, e);
}

static double row_squares(float *columns, const float *g, int64_t n, struct seen s, float epsilon) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const float x = seen(g[i], s), square = x * x + epsilon;
        columns[i] += square;
        sum += square;
    }
    return sum;
}

static double row_update_squares(const float *g, const float *column, float factor, int64_t n, struct seen s) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double u = seen(g[i], s) * factor * column[i];
        sum += u * u;
    }
    return sum;
}

static void row_apply(float *p, const float *g, const float *column, float factor, float keep, int64_t n,
                      struct seen s) {
    for (int64_t i = 0; i < n; i++)
        p[i] = keep * p[i] - seen(g[i], s) * factor * column[i];
}

void plain_optimizer_table(struct cpu *c) {
    static const struct adafactor_rows rows = { row_squares, row_update_squares, row_apply };
    struct kernels *t = &c->table;
    c->step_along = step_along;
    c->adafactor_rows = &rows;
    t->adamw = adamw;
    t->sgd = sgd;
    t->lion = lion;
    t->momentum = momentum;
    t->sgd_step = optimizer_sgd_step;
    t->scale_add = optimizer_scale_add;
    t->running_mean = running_mean;
    t->normalise = normalise;
    t->adafactor = adafactor_step;
    t->adafactor_workspace = adafactor_workspace;
}
