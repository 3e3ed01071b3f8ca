#include "engine/optimizer/check.h"
#include "engine/optimizer/spans.h"

static status_t check(const struct optimizer_config *o, struct err *e) {
    TRY(setting_rate("lion", "beta1", o->lion.beta1, e));
    TRY(setting_rate("lion", "beta2", o->lion.beta2, e));
    return setting_not_negative("lion", "weight_decay", o->lion.weight_decay, e);
}

static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    const struct lion lion = { .learning_rate = c->learning_rate,
                               .update = c->update,
                               .beta1 = o->lion.beta1,
                               .beta2 = o->lion.beta2,
                               .weight_decay = o->lion.weight_decay,
                               .clip_value = (float)c->clip_value };
    struct span spans[OPTIMIZER_SHARDS];
    return c->kernels->lion(c->kernels, spans_of(c, spans), c->n_shards, &lion, e);
}

static double rate(const struct optimizer_config *o) { return o->lion.lr; }

static const struct member MEMBERS[] = {
    MEMBER_REAL(struct lion_settings, lr),
    MEMBER_REAL(struct lion_settings, beta1),
    MEMBER_REAL(struct lion_settings, beta2),
    MEMBER_REAL(struct lion_settings, weight_decay),
};

const struct optimizer_kind optimizer_lion = { .name = "lion",
                                               .members = MEMBERS,
                                               .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                               .n_states = 1,
                                               .state_name = { "m" },
                                               .check = check,
                                               .step = step,
                                               .rate = rate };
