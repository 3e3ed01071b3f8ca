/* An optimizer that test_new_kinds.py adds to a copy of the tree: a step of the size lr along the sign of the gradient.
 * It keeps no state that differs from zero: Lion with beta1 0 and beta2 1. */
#include "engine/optimizer/check.h"
#include "engine/optimizer/spans.h"

struct signum_settings {
    double lr;
};

static const struct signum_settings *settings(const struct optimizer_config *o) {
    return (const struct signum_settings *)o->settings;
}

static status_t check(const struct optimizer_config *o, struct err *e) {
    return setting_not_negative("signum", "lr", settings(o)->lr, e);
}

static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    (void)o;
    const struct lion lion = {
        .learning_rate = c->learning_rate, .update = c->update, .beta2 = 1, .clip_value = (float)c->clip_value
    };
    struct span spans[OPTIMIZER_SHARDS];
    return c->kernels->lion(c->kernels, spans_of(c, spans), c->n_shards, &lion, e);
}

static double rate(const struct optimizer_config *o) { return settings(o)->lr; }

static const struct member MEMBERS[] = { MEMBER_REAL(struct signum_settings, lr) };

const struct optimizer_kind optimizer_signum = { .name = "signum",
                                                 .members = MEMBERS,
                                                 .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                                 .n_states = 1,
                                                 .state_name = { "m" },
                                                 .check = check,
                                                 .step = step,
                                                 .rate = rate };
