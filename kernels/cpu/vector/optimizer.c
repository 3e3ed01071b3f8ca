/* The optimizers AdamW, SGD and Lion, and the vector loops of Muon and Adafactor.
 *
 * Each optimizer has one loop over a block: load gradient, states and parameters, compute the new states and parameters
 * in registers, store them. All numbers are fp32. The coefficients that depend on the update (bias correction, learning
 * rate) are computed in double, once per call or span.
 *
 * A span is divided into blocks of OPTIMIZER_BLOCK elements for the threads. After each block the parameters are
 * rounded to the weights of the table's precision, while the block is in the cache. The results of elements are
 * independent, so that the number of threads does not change bits.
 *
 * Adafactor's row sums are added in double, in two halves of a vector. If an update is skipped, nothing changes. */
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/vector/vector.h"

/* struct seen of cpu/optimizer.h, with each number in all lanes. */
struct vseen {
    vf scale, min, max;
};

static struct vseen vseen_of(const struct update *u, float clip_value) {
    const struct seen s = seen_of(u, clip_value);
    return (struct vseen){ vf_set(s.scale), vf_set(-s.limit), vf_set(s.limit) };
}

/* max and min return their second operand if one operand is a NaN. The gradient is the second operand, so that a NaN
 * stays a NaN. */
static inline vf vf_seen(const float *g, int64_t lanes, const struct vseen *s) {
    return vf_min(s->max, vf_max(s->min, vf_mul(vf_load_first(g, lanes), s->scale)));
}

/* --- AdamW ---*/

struct adamw_coefficients {
    struct vseen seen;
    vf beta1, rest1, beta2, rest2, correction, epsilon, step, keep;
};

static void adamw_block(float *p, float *m, float *v, const float *g, int64_t n, const struct adamw_coefficients *o) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf gi = vf_seen(g + i, lanes, &o->seen);
        const vf mi = vf_fma(o->beta1, vf_load_first(m + i, lanes), vf_mul(o->rest1, gi));
        const vf vi = vf_fma(o->beta2, vf_load_first(v + i, lanes), vf_mul(o->rest2, vf_mul(gi, gi)));
        const vf by = vf_fma(vf_sqrt(vi), o->correction, o->epsilon);
        vf_store_first(m + i, mi, lanes);
        vf_store_first(v + i, vi, lanes);
        vf_store_first(p + i, vf_fnma(o->step, vf_div(mi, by), vf_mul(o->keep, vf_load_first(p + i, lanes))), lanes);
    }
}

static status_t adamw(const struct kernels *k, const struct span *spans, int n_spans, const struct adamw *o,
                      struct err *e) {
    (void)e;
    if (o->update->skip != STEP_APPLIED)
        return ST_OK;
    struct adamw_coefficients c = {
        .seen = vseen_of(o->update, o->clip_value),
        .beta1 = vf_set((float)o->beta1),
        .rest1 = vf_set((float)(1.0 - o->beta1)),
        .beta2 = vf_set((float)o->beta2),
        .rest2 = vf_set((float)(1.0 - o->beta2)),
        .correction = vf_set((float)(1.0 / sqrt(1.0 - pow(o->beta2, (double)o->update->number)))),
        .epsilon = vf_set((float)o->epsilon),
        .step = vf_set((float)(*o->learning_rate / (1.0 - pow(o->beta1, (double)o->update->number)))),
    };
    for (const struct span *s = spans; s < spans + n_spans; s++) {
        c.keep = vf_set((float)(1.0 - *o->learning_rate * span_decay(s, o->weight_decay)));
#pragma omp parallel for num_threads(k->threads) schedule(static) if (s->n > OPTIMIZER_BLOCK)
        for (int64_t i = 0; i < s->n; i += OPTIMIZER_BLOCK) {
            adamw_block(s->p + i, s->m + i, s->v + i, s->x + i, optimizer_block(i, s->n), &c);
            weight_round(k, s->weight, s->p, i, optimizer_block(i, s->n));
        }
    }
    return ST_OK;
}

/* --- SGD ---*/

struct sgd_coefficients {
    struct vseen seen;
    vf rate, momentum, decay;
    bool nesterov;
};

static void sgd_block(float *p, float *m, const float *g, int64_t n, const struct sgd_coefficients *o) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf pi = vf_load_first(p + i, lanes);
        const vf gi = vf_fma(o->decay, pi, vf_seen(g + i, lanes, &o->seen));
        const vf mi = vf_fma(o->momentum, vf_load_first(m + i, lanes), gi);
        vf_store_first(m + i, mi, lanes);
        vf_store_first(p + i, vf_fnma(o->rate, o->nesterov ? vf_fma(o->momentum, mi, gi) : mi, pi), lanes);
    }
}

static status_t sgd(const struct kernels *k, const struct span *spans, int n_spans, const struct sgd *o,
                    struct err *e) {
    (void)e;
    if (o->update->skip != STEP_APPLIED)
        return ST_OK;
    struct sgd_coefficients c = { .seen = vseen_of(o->update, o->clip_value),
                                  .rate = vf_set((float)*o->learning_rate),
                                  .momentum = vf_set((float)o->momentum),
                                  .nesterov = o->nesterov };
    for (const struct span *s = spans; s < spans + n_spans; s++) {
        c.decay = vf_set((float)span_decay(s, o->weight_decay));
#pragma omp parallel for num_threads(k->threads) schedule(static) if (s->n > OPTIMIZER_BLOCK)
        for (int64_t i = 0; i < s->n; i += OPTIMIZER_BLOCK) {
            sgd_block(s->p + i, s->m + i, s->x + i, optimizer_block(i, s->n), &c);
            weight_round(k, s->weight, s->p, i, optimizer_block(i, s->n));
        }
    }
    return ST_OK;
}

/* --- Lion ---*/

struct lion_coefficients {
    struct vseen seen;
    vf beta1, rest1, beta2, rest2, rate, keep;
};

/* Returns -1, 0 or 1 as a float. A number times 2^100 twice is beyond 1 for every number but 0; one multiplication
 * would not be enough for the smallest numbers. */
static inline vf vf_sign(vf x) {
    const vf large = vf_set(0x1p100f), one = vf_set(1), less = vf_set(-1);
    return vf_min(one, vf_max(less, vf_mul(vf_mul(x, large), large)));
}

static void lion_block(float *p, float *m, const float *g, int64_t n, const struct lion_coefficients *o) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf gi = vf_seen(g + i, lanes, &o->seen), mi = vf_load_first(m + i, lanes);
        const vf along = vf_sign(vf_fma(o->beta1, mi, vf_mul(o->rest1, gi)));
        vf_store_first(p + i, vf_fnma(o->rate, along, vf_mul(o->keep, vf_load_first(p + i, lanes))), lanes);
        vf_store_first(m + i, vf_fma(o->beta2, mi, vf_mul(o->rest2, gi)), lanes);
    }
}

static status_t lion(const struct kernels *k, const struct span *spans, int n_spans, const struct lion *o,
                     struct err *e) {
    (void)e;
    if (o->update->skip != STEP_APPLIED)
        return ST_OK;
    struct lion_coefficients c = { .seen = vseen_of(o->update, o->clip_value),
                                   .beta1 = vf_set((float)o->beta1),
                                   .rest1 = vf_set((float)(1.0 - o->beta1)),
                                   .beta2 = vf_set((float)o->beta2),
                                   .rest2 = vf_set((float)(1.0 - o->beta2)),
                                   .rate = vf_set((float)*o->learning_rate) };
    for (const struct span *s = spans; s < spans + n_spans; s++) {
        c.keep = vf_set((float)(1.0 - *o->learning_rate * span_decay(s, o->weight_decay)));
#pragma omp parallel for num_threads(k->threads) schedule(static) if (s->n > OPTIMIZER_BLOCK)
        for (int64_t i = 0; i < s->n; i += OPTIMIZER_BLOCK) {
            lion_block(s->p + i, s->m + i, s->x + i, optimizer_block(i, s->n), &c);
            weight_round(k, s->weight, s->p, i, optimizer_block(i, s->n));
        }
    }
    return ST_OK;
}

/* --- parts of Muon ---*/

static status_t momentum(const struct kernels *k, float *u, float *m, const float *g, int64_t n,
                         const struct momentum *o, struct err *e) {
    (void)e;
    if (o->update->skip != STEP_APPLIED)
        return ST_OK;
    const struct vseen s = vseen_of(o->update, o->clip_value);
    const vf keep = vf_set((float)o->momentum), rest = vf_set((float)(1.0 - o->momentum));
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > OPTIMIZER_BLOCK)
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf gi = vf_mul(rest, vf_seen(g + i, lanes, &s));
        const vf mi = vf_fma(keep, vf_load_first(m + i, lanes), gi);
        vf_store_first(m + i, mi, lanes);
        vf_store_first(u + i, o->nesterov ? vf_fma(keep, mi, gi) : mi, lanes);
    }
    return ST_OK;
}

static void step_along_block(float *p, const float *x, int64_t n, vf keep, vf by) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf pi = vf_mul(keep, vf_load_first(p + i, lanes));
        vf_store_first(p + i, vf_fma(by, vf_load_first(x + i, lanes), pi), lanes);
    }
}

static void step_along(const struct kernels *k, float *p, element_t *weight, const float *x, int64_t n, float keep,
                       float by) {
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > OPTIMIZER_BLOCK)
    for (int64_t i = 0; i < n; i += OPTIMIZER_BLOCK) {
        step_along_block(p + i, x + i, optimizer_block(i, n), vf_set(keep), vf_set(by));
        weight_round(k, weight, p, i, optimizer_block(i, n));
    }
}

/* --- Adafactor ---*/

static struct vseen vseen_from(struct seen s) {
    return (struct vseen){ vf_set(s.scale), vf_set(-s.limit), vf_set(s.limit) };
}

static double row_squares(float *columns, const float *g, int64_t n, struct seen seen, float epsilon) {
    const struct vseen s = vseen_from(seen);
    vd low = vd_zero(), high = vd_zero();
    const vf one = vf_set(1);
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf x = vf_seen(g + i, lanes, &s);
        const vf square = vf_fma(x, x, vf_set(epsilon));
        vf_store_first(columns + i, vf_add(vf_load_first(columns + i, lanes), square), lanes);
        low = vd_fma(vd_low(square), vd_low(one), low);
        high = vd_fma(vd_high(square), vd_high(one), high);
    }
    /* The lanes beyond the end of the row read a gradient of 0, and each added epsilon. */
    return vd_sum(vd_add(low, high)) - (double)epsilon * (double)((LANES - n % LANES) % LANES);
}

static double row_update_squares(const float *g, const float *column, float factor, int64_t n, struct seen seen) {
    const struct vseen s = vseen_from(seen);
    const vf by = vf_set(factor);
    vd low = vd_zero(), high = vd_zero();
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf u = vf_mul(vf_mul(vf_seen(g + i, lanes, &s), by), vf_load_first(column + i, lanes));
        low = vd_fma(vd_low(u), vd_low(u), low);
        high = vd_fma(vd_high(u), vd_high(u), high);
    }
    return vd_sum(vd_add(low, high));
}

static void row_apply(float *p, const float *g, const float *column, float factor, float keep, int64_t n,
                      struct seen seen) {
    const struct vseen s = vseen_from(seen);
    const vf by = vf_set(factor), stay = vf_set(keep);
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf u = vf_mul(vf_seen(g + i, lanes, &s), by);
        const vf pi = vf_mul(stay, vf_load_first(p + i, lanes));
        vf_store_first(p + i, vf_fnma(u, vf_load_first(column + i, lanes), pi), lanes);
    }
}

void VECTOR_ISA(optimizer_table)(struct cpu *c) {
    static const struct adafactor_rows rows = { row_squares, row_update_squares, row_apply };
    struct kernels *t = &c->table;
    c->step_along = step_along;
    c->adafactor_rows = &rows;
    t->adamw = adamw;
    t->sgd = sgd;
    t->lion = lion;
    t->momentum = momentum;
}
