#include "executor/engine/optimizer/check.h"
#include "executor/engine/optimizer/spans.h"

static status_t check(const struct optimizer_config *o, struct err *e) {
    TRY(setting_within("sgd", "momentum", o->sgd.momentum, 0, 1, e));
    if (o->sgd.nesterov && o->sgd.momentum == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer.sgd.nesterov: needs a momentum above 0");
    return setting_within("sgd", "weight_decay", o->sgd.weight_decay, 0, 1e6, e);
}

static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    const struct sgd sgd = { .learning_rate = c->learning_rate,
                             .update = c->update,
                             .momentum = o->sgd.momentum,
                             .weight_decay = o->sgd.weight_decay,
                             .nesterov = o->sgd.nesterov,
                             .clip_value = (float)c->clip_value };
    struct span room[OPTIMIZER_PIECES];
    return c->kernels->sgd(c->kernels, spans_of(c, room), c->n_pieces, &sgd, e);
}

static double rate(const struct optimizer_config *o) { return o->sgd.lr; }

const struct optimizer_kind optimizer_sgd = {
    .name = "sgd", .n_states = 1, .state_name = { "m" }, .check = check, .step = step, .rate = rate
};
