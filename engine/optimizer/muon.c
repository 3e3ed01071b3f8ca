/* Muon: the momentum of a matrix is replaced by the nearest orthogonal matrix, approximated by Newton-Schulz iterations
 * X <- a X + (b G + c G G) X, G = X X^T, on the smaller side of the matrix. The step of a matrix with more outputs than
 * inputs is larger, by the root of their ratio. All other parameters are stepped by AdamW.
 *
 * A parameter may pack several matrices of the same size, as q, k and v: each is made orthogonal by itself, because a
 * step that is orthogonal as a whole would mix them. Stored (out, in), they follow one another, and the iterations run
 * on their bytes. Stored (in, out), they are slices of columns, which are copied out and back. */
#include "engine/optimizer/adamw.h"
#include "engine/optimizer/check.h"

#include <assert.h>
#include <math.h>

/* Of the quintic iteration (Keller Jordan): its slope at 0 is as steep as it can be, so that five iterations bring
 * every singular value from 0.002 up to about 1; they end between 0.7 and 1.2. */
static const double QUINTIC_A = 3.4445, QUINTIC_B = -4.7750, QUINTIC_C = 2.0315;
static const double MIN_NORM = 1e-7;

/* One matrix x (rows, columns) on its way to orthogonality, and the smaller of its two Gram matrices: x x^T, or x^T x
 * of a tall one, so that it need not be transposed. All of this is fp32 in every precision of the weights. */
struct newton_schulz {
    const struct kernels *k;
    int64_t rows, columns, side;
    float *x, *next, *gram, *square;
    void *product; /* workspace of linear_backward_weight */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t aligned(int64_t elements) { return (elements + 15) / 16 * 16; }
static int packed(const struct parameter *p) { return p->packed > 1 ? p->packed : 1; }
/* Whether the packed matrices are slices of columns, so that a buffer holds the one that is worked on. */
static bool is_sliced(const struct parameter *p) { return packed(p) > 1 && p->input_first; }

static struct linear_dims gram_dims(int64_t rows, int64_t columns) {
    return rows <= columns ? (struct linear_dims){ .rows = rows, .in = columns, .out = rows, .transposed = true }
                           : (struct linear_dims){ .rows = rows, .in = columns, .out = columns };
}

/* The size of each packed matrix. */
static void dims_of(const struct parameter *p, struct newton_schulz *n) {
    n->rows = p->shape.dim[0] / (p->input_first ? 1 : packed(p));
    n->columns = p->shape.dim[1] / (p->input_first ? packed(p) : 1);
    n->side = smaller(n->rows, n->columns);
}

/* Workspace: the momentum of the whole parameter, a slice if there are slices, and the iterations' matrices. */
static struct newton_schulz newton_schulz_in(const struct optimizer_call *c, const struct parameter *p) {
    struct newton_schulz n = { .k = c->kernels->fp32 };
    dims_of(p, &n);
    const int64_t elements = aligned(n.rows * n.columns);
    n.x = (float *)c->workspace + aligned(shape_elements(&p->shape));
    n.next = n.x + (is_sliced(p) ? elements : 0);
    n.gram = n.next + elements;
    n.square = n.gram + aligned(n.side * n.side);
    n.product = n.square + aligned(n.side * n.side);
    return n;
}

static size_t workspace(const struct kernels *k, const struct parameter *p) {
    if (!p->matrix)
        return 0;
    struct newton_schulz n;
    dims_of(p, &n);
    const struct linear_dims gram = gram_dims(n.rows, n.columns);
    const int64_t floats = aligned(shape_elements(&p->shape)) + 2 * aligned(n.side * n.side) +
                           (is_sliced(p) ? 2 : 1) * aligned(n.rows * n.columns);
    return (size_t)floats * sizeof(float) +
           (n.rows > n.columns ? k->fp32->linear_backward_weight_workspace(k->fp32, &gram) : 0);
}

static status_t gram_of(const struct newton_schulz *n, struct err *e) {
    const struct linear_dims d = gram_dims(n->rows, n->columns);
    return d.transposed ? n->k->linear_forward(n->k, n->gram, NULL, n->x, n->x, NULL, &d, e)
                        : n->k->linear_backward_weight(n->k, n->gram, n->x, n->x, &d, false, n->product, e);
}

static status_t scale_add(const struct kernels *k, float *p, const float *x, int64_t n, double keep, double by,
                          struct err *e) {
    return k->scale_add(k, &(struct span){ .n = n, .p = p, .x = x }, 1, keep, by, NULL, e);
}

static struct linear_dims square_dims(int64_t side) {
    return (struct linear_dims){ .rows = side, .in = side, .out = side };
}

static struct linear_dims next_dims(int64_t rows, int64_t columns) {
    return (struct linear_dims){ .rows = rows, .in = smaller(rows, columns), .out = columns };
}

static int linears(const struct parameter *p, struct linear_dims *ret) {
    if (!p->matrix)
        return 0;
    const int64_t rows = p->shape.dim[0], columns = p->shape.dim[1];
    ret[0] = gram_dims(rows, columns);
    ret[1] = square_dims(smaller(rows, columns));
    ret[2] = next_dims(rows, columns);
    return 3;
}

/* x = a x + (b G + c G G) x, or x (b G + c G G) of a tall one. */
static status_t iterate(const struct newton_schulz *n, struct err *e) {
    const struct kernels *k = n->k;
    const struct linear_dims square = square_dims(n->side), next = next_dims(n->rows, n->columns);
    TRY(gram_of(n, e));
    TRY(k->linear_forward(k, n->square, NULL, n->gram, n->gram, NULL, &square, e));
    TRY(scale_add(k, n->square, n->gram, n->side * n->side, QUINTIC_C, QUINTIC_B, e));
    if (n->rows <= n->columns)
        TRY(k->linear_forward(k, n->next, NULL, n->square, n->x, NULL, &next, e));
    else
        TRY(k->linear_forward(k, n->next, NULL, n->x, n->square, NULL, &next, e));
    return scale_add(k, n->x, n->next, n->rows * n->columns, QUINTIC_A, 1, e);
}

/* x becomes nearly orthogonal. It is first divided by its Frobenius norm, which is at least the largest singular
 * value. */
static status_t orthogonalise(const struct newton_schulz *n, int iterations, struct err *e) {
    TRY(n->k->normalise(n->k, n->x, n->rows * n->columns, MIN_NORM, (double *)(void *)n->next, e));
    for (int i = 0; i < iterations; i++)
        TRY(iterate(n, e));
    return ST_OK;
}

/* The same of each of the matrices that the whole parameter's momentum packs. */
static status_t orthogonalise_packed(const struct newton_schulz *n, const struct parameter *p, float *momentum,
                                     int iterations, struct err *e) {
    const size_t row = (size_t)p->shape.dim[1] * sizeof(float), slice = (size_t)n->columns * sizeof(float);
    for (int j = 0; j < packed(p); j++) {
        struct newton_schulz one = *n;
        float *at = momentum + j * (is_sliced(p) ? n->columns : n->rows * n->columns);
        if (!is_sliced(p))
            one.x = at;
        else
            TRY(n->k->move_rows(n->k, one.x, slice, at, row, slice, n->rows, e));
        TRY(orthogonalise(&one, iterations, e));
        if (is_sliced(p))
            TRY(n->k->move_rows(n->k, at, row, one.x, slice, slice, n->rows, e));
    }
    return ST_OK;
}

static status_t step_matrix(const struct muon_settings *s, const struct optimizer_call *c,
                            const struct optimizer_shard *p, struct err *e) {
    const struct newton_schulz n = newton_schulz_in(c, p->parameter);
    const struct momentum momentum = {
        .update = c->update, .momentum = s->momentum, .nesterov = s->nesterov, .clip_value = (float)c->clip_value
    };
    float *x = c->workspace;
    TRY(n.k->momentum(n.k, x, p->state[0], p->gradient, p->count, &momentum, e));
    TRY(orthogonalise_packed(&n, p->parameter, x, s->iterations, e));
    const double tall = p->parameter->input_first ? (double)n.columns / (double)n.rows
                                                  : (double)n.rows / (double)n.columns;
    const struct sgd_step descent = { .learning_rate = c->learning_rate,
                                      .update = c->update,
                                      .factor = sqrt(tall > 1 ? tall : 1),
                                      .weight_decay = decay_of(p->parameter, s->weight_decay) };
    return c->kernels->sgd_step(c->kernels, p->master, p->weight, x, p->count, &descent, e);
}

static int64_t state_elements(const struct parameter *p, int state) {
    return state == 1 && p->matrix ? 0 : shape_elements(&p->shape);
}

static status_t check(const struct optimizer_config *o, struct err *e) {
    const struct muon_settings *s = &o->muon;
    TRY(setting_rate("muon", "momentum", s->momentum, e));
    if (s->iterations < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer.muon.iterations: %d is not at least 1", s->iterations);
    TRY(setting_not_negative("muon", "weight_decay", s->weight_decay, e));
    TRY(setting_not_negative("muon.adamw", "lr", s->adamw.lr, e));
    return adamw_check("muon.adamw", &s->adamw, e);
}

/* The matrices one by one, all the rest together. */
static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    const struct muon_settings *s = &o->muon;
    struct optimizer_shard rest[OPTIMIZER_SHARDS];
    struct optimizer_call by_adamw = *c;
    by_adamw.shards = rest;
    by_adamw.n_shards = 0;
    for (const struct optimizer_shard *p = c->shards; p < c->shards + c->n_shards; p++) {
        assert(!p->parameter->matrix || p->parameter->shape.n == 2);
        if (p->parameter->matrix)
            TRY(step_matrix(s, c, p, e));
        else
            rest[by_adamw.n_shards++] = *p;
    }
    return adamw_step(&s->adamw, &by_adamw, c->learning_rate + 1, e);
}

static double rate(const struct optimizer_config *o) { return o->muon.lr; }

static double second_rate(const struct optimizer_config *o, double learning_rate) {
    const struct muon_settings *s = &o->muon;
    return s->lr > 0 ? s->adamw.lr * (learning_rate / s->lr) : s->adamw.lr;
}

static const struct member MEMBERS[] = {
    MEMBER_REAL(struct muon_settings, lr),           MEMBER_REAL(struct muon_settings, momentum),
    MEMBER_REAL(struct muon_settings, weight_decay), MEMBER_INT(struct muon_settings, iterations),
    MEMBER_BOOL(struct muon_settings, nesterov),     MEMBER_REAL(struct muon_settings, adamw.lr),
    MEMBER_REAL(struct muon_settings, adamw.beta1),  MEMBER_REAL(struct muon_settings, adamw.beta2),
    MEMBER_REAL(struct muon_settings, adamw.eps),    MEMBER_REAL(struct muon_settings, adamw.weight_decay),
};

const struct optimizer_kind optimizer_muon = { .name = "muon",
                                               .members = MEMBERS,
                                               .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                               .n_states = 2,
                                               .state_name = { "m", "v" },
                                               .whole_tensor = true,
                                               .state_elements = state_elements,
                                               .workspace = workspace,
                                               .linears = linears,
                                               .check = check,
                                               .step = step,
                                               .rate = rate,
                                               .second_rate = second_rate };
