#include "engine/optimizer/adamw.h"

#include "engine/optimizer/check.h"
#include "engine/optimizer/spans.h"

status_t adamw_check(const char *path, const struct adamw_settings *s, struct err *e) {
    TRY(setting_rate(path, "beta1", s->beta1, e));
    TRY(setting_rate(path, "beta2", s->beta2, e));
    TRY(setting_not_negative(path, "eps", s->eps, e));
    return setting_not_negative(path, "weight_decay", s->weight_decay, e);
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
    struct span spans[OPTIMIZER_SHARDS];
    return c->kernels->adamw(c->kernels, spans_of(c, spans), c->n_shards, &adamw, e);
}

static status_t check(const struct optimizer_config *o, struct err *e) { return adamw_check("adamw", &o->adamw, e); }

static status_t step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    return adamw_step(&o->adamw, c, c->learning_rate, e);
}

static double rate(const struct optimizer_config *o) { return o->adamw.lr; }

static const struct member MEMBERS[] = {
    MEMBER_REAL(struct adamw_settings, lr),           MEMBER_REAL(struct adamw_settings, beta1),
    MEMBER_REAL(struct adamw_settings, beta2),        MEMBER_REAL(struct adamw_settings, eps),
    MEMBER_REAL(struct adamw_settings, weight_decay),
};

const struct optimizer_kind optimizer_adamw = { .name = "adamw",
                                                .members = MEMBERS,
                                                .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                                .n_states = 2,
                                                .state_name = { "m", "v" },
                                                .check = check,
                                                .step = step,
                                                .rate = rate };
