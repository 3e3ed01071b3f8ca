#include "engine/optimizer/check.h"
#include "engine/optimizer/spans.h"

static status_t check(const struct optimizer_config *o, struct err *e) {
    TRY(setting_rate("sgd", "momentum", o->sgd.momentum, e));
    if (o->sgd.nesterov && o->sgd.momentum == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer.sgd.nesterov: needs a momentum above 0");
    return setting_not_negative("sgd", "weight_decay", o->sgd.weight_decay, e);
}

static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    const struct sgd sgd = { .learning_rate = c->learning_rate,
                             .update = c->update,
                             .momentum = o->sgd.momentum,
                             .weight_decay = o->sgd.weight_decay,
                             .nesterov = o->sgd.nesterov,
                             .clip_value = (float)c->clip_value };
    struct span spans[OPTIMIZER_SHARDS];
    return c->kernels->sgd(c->kernels, spans_of(c, spans), c->n_shards, &sgd, e);
}

static double rate(const struct optimizer_config *o) { return o->sgd.lr; }

static const struct member MEMBERS[] = {
    MEMBER_REAL(struct sgd_settings, lr),
    MEMBER_REAL(struct sgd_settings, momentum),
    MEMBER_REAL(struct sgd_settings, weight_decay),
    MEMBER_BOOL(struct sgd_settings, nesterov),
};

const struct optimizer_kind optimizer_sgd = { .name = "sgd",
                                              .members = MEMBERS,
                                              .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                              .n_states = 1,
                                              .state_name = { "m" },
                                              .check = check,
                                              .step = step,
                                              .rate = rate };
