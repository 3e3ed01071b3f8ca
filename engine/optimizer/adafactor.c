#include "engine/optimizer/check.h"

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
    TRY(setting_not_negative("adafactor", "beta2_decay", s->beta2_decay, e));
    TRY(setting_not_negative("adafactor", "eps1", s->eps1, e));
    TRY(setting_not_negative("adafactor", "eps2", s->eps2, e));
    if (!(s->clip_threshold > 0))
        return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer.adafactor.clip_threshold: %g is not above 0",
                       s->clip_threshold);
    return setting_not_negative("adafactor", "weight_decay", s->weight_decay, e);
}

static status_t step_shard(const struct adafactor_settings *s, const struct optimizer_call *c,
                           const struct optimizer_shard *shard, struct err *e) {
    const struct parameter *p = shard->parameter;
    const struct adafactor adafactor = { .learning_rate = c->learning_rate,
                                         .update = c->update,
                                         .beta2_decay = s->beta2_decay,
                                         .epsilon1 = s->eps1,
                                         .epsilon2 = s->eps2,
                                         .clip_threshold = s->clip_threshold,
                                         .weight_decay = decay_of(p, s->weight_decay),
                                         .clip_value = (float)c->clip_value };
    float *column = p->shape.n > 1 ? shard->state[1] : NULL;
    return c->kernels->adafactor(c->kernels, shard->master, shard->weight, shard->state[0], column, shard->gradient,
                                 rows_of(p), columns_of(p), &adafactor, c->workspace, e);
}

static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    for (int i = 0; i < c->n_shards; i++)
        TRY(step_shard(&o->adafactor, c, &c->shards[i], e));
    return ST_OK;
}

static double rate(const struct optimizer_config *o) { return o->adafactor.lr; }

static const struct member MEMBERS[] = {
    MEMBER_REAL(struct adafactor_settings, lr),
    MEMBER_REAL(struct adafactor_settings, beta2_decay),
    MEMBER_REAL(struct adafactor_settings, eps1),
    MEMBER_REAL(struct adafactor_settings, eps2),
    MEMBER_REAL(struct adafactor_settings, clip_threshold),
    MEMBER_REAL(struct adafactor_settings, weight_decay),
};

const struct optimizer_kind optimizer_adafactor = { .name = "adafactor",
                                                    .members = MEMBERS,
                                                    .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                                    .n_states = 2,
                                                    .state_name = { "row", "column" },
                                                    .whole_tensor = true,
                                                    .state_elements = state_elements,
                                                    .workspace = workspace,
                                                    .check = check,
                                                    .step = step,
                                                    .rate = rate };
