#include "executor/engine/optimizer/check.h"
#include "executor/engine/optimizer/spans.h"

static status_t check(const struct optimizer_config *o, struct err *e) {
    TRY(setting_within("lion", "beta1", o->lion.beta1, 0, 1, e));
    TRY(setting_within("lion", "beta2", o->lion.beta2, 0, 1, e));
    return setting_within("lion", "weight_decay", o->lion.weight_decay, 0, 1e6, e);
}

static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    const struct lion lion = { .learning_rate = c->learning_rate,
                               .update = c->update,
                               .beta1 = o->lion.beta1,
                               .beta2 = o->lion.beta2,
                               .weight_decay = o->lion.weight_decay,
                               .clip_value = (float)c->clip_value };
    struct span room[OPTIMIZER_PIECES];
    return c->kernels->lion(c->kernels, spans_of(c, room), c->n_pieces, &lion, e);
}

static double rate(const struct optimizer_config *o) { return o->lion.lr; }

const struct optimizer_kind optimizer_lion = {
    .name = "lion", .n_states = 1, .state_name = { "m" }, .check = check, .step = step, .rate = rate
};
