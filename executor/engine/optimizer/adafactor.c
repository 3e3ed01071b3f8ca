#include "executor/engine/optimizer/check.h"

/* Rows and columns of the matrix that a parameter counts as. */
static int64_t rows_of(const struct parameter *p) { return p->shape.n > 1 ? p->shape.dim[0] : 1; }
static int64_t columns_of(const struct parameter *p) { return shape_elements(&p->shape) / rows_of(p); }

static int64_t state_elements(const struct parameter *p, int state) {
    if (p->shape.n <= 1)
        return state == 0 ? shape_elements(&p->shape) : 0;
    return state == 0 ? rows_of(p) : columns_of(p);
}

static size_t workspace(const struct kernels *k, const struct parameter *p) {
    return k->adafactor_workspace(k, rows_of(p), columns_of(p));
}

static status_t check(const struct optimizer_config *o, struct err *e) {
    const struct adafactor_settings *s = &o->adafactor;
    TRY(setting_within("adafactor", "beta2_decay", s->beta2_decay, 0, 1, e));
    TRY(setting_within("adafactor", "eps1", s->eps1, 0, 1, e));
    TRY(setting_within("adafactor", "eps2", s->eps2, 0, 1, e));
    if (!(s->clip_threshold > 0))
        return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer.adafactor.clip_threshold: %g is not above 0",
                       s->clip_threshold);
    return setting_within("adafactor", "weight_decay", s->weight_decay, 0, 1e6, e);
}

static status_t step_piece(const struct adafactor_settings *s, const struct optimizer_call *c,
                           const struct optimizer_piece *piece, struct err *e) {
    const struct parameter *p = piece->parameter;
    const struct adafactor adafactor = { .learning_rate = c->learning_rate,
                                         .update = c->update,
                                         .beta2_decay = s->beta2_decay,
                                         .epsilon1 = s->eps1,
                                         .epsilon2 = s->eps2,
                                         .clip_threshold = s->clip_threshold,
                                         .weight_decay = decay_of(p, s->weight_decay),
                                         .clip_value = (float)c->clip_value };
    float *column = p->shape.n > 1 ? piece->state[1] : NULL;
    return c->kernels->adafactor(c->kernels, piece->master, piece->weight, piece->state[0], column, piece->gradient,
                                 rows_of(p), columns_of(p), &adafactor, c->workspace, e);
}

static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    for (int i = 0; i < c->n_pieces; i++)
        TRY(step_piece(&o->adafactor, c, &c->pieces[i], e));
    return ST_OK;
}

static double rate(const struct optimizer_config *o) { return o->adafactor.lr; }

const struct optimizer_kind optimizer_adafactor = { .name = "adafactor",
                                                    .n_states = 2,
                                                    .state_name = { "row", "column" },
                                                    .whole_tensor = true,
                                                    .state_elements = state_elements,
                                                    .workspace = workspace,
                                                    .check = check,
                                                    .step = step,
                                                    .rate = rate };
