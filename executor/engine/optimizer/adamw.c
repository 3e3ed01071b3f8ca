#include "executor/engine/optimizer/adamw.h"

#include "executor/engine/optimizer/check.h"
#include "executor/engine/optimizer/spans.h"

status_t adamw_check(const char *path, const struct adamw_settings *s, struct err *e) {
    TRY(setting_within(path, "beta1", s->beta1, 0, 1, e));
    TRY(setting_within(path, "beta2", s->beta2, 0, 1, e));
    TRY(setting_within(path, "eps", s->eps, 0, 1, e));
    return setting_within(path, "weight_decay", s->weight_decay, 0, 1e6, e);
}

status_t adamw_step(const struct adamw_settings *s, const struct optimizer_call *c, const double *learning_rate,
                    struct err *e) {
    const struct adamw adamw = { .learning_rate = learning_rate,
                                 .update = c->update,
                                 .beta1 = s->beta1,
                                 .beta2 = s->beta2,
                                 .epsilon = s->eps,
                                 .weight_decay = s->weight_decay,
                                 .clip_value = (float)c->clip_value };
    struct span room[OPTIMIZER_PIECES];
    return c->kernels->adamw(c->kernels, spans_of(c, room), c->n_pieces, &adamw, e);
}

static status_t check(const struct optimizer_config *o, struct err *e) { return adamw_check("adamw", &o->adamw, e); }

static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    return adamw_step(&o->adamw, c, c->learning_rate, e);
}

static double rate(const struct optimizer_config *o) { return o->adamw.lr; }

const struct optimizer_kind optimizer_adamw = {
    .name = "adamw", .n_states = 2, .state_name = { "m", "v" }, .check = check, .step = step, .rate = rate
};
