#include "api/codec/text.h"
#include "api/spec/fields.h"
#include "api/spec/rules.h"

#include <inttypes.h>
#include <string.h>

/* A trace holds every instruction of each of these steps. */
enum { PROFILED_STEPS_MAX = 100 };

/* Lane k takes micro-batches k, k + lanes, ...: every lane has equally many. */
bool rules_batches(const Trainyard__V1__TrainSpec *t, struct spec_problems *p) {
    if (!rules_field_good(&t->base, "global_batch") || !rules_field_good(&t->base, "micro_batch") ||
        !rules_field_good(&t->base, "lanes") || !t->_micro_batch_case) /* not set with `auto`: the plan chooses */
        return false;
    if (!t->_lanes_case && t->global_batch % t->micro_batch != 0) {
        problem_add(p, "train.global_batch: %d is not a multiple of micro_batch = %d", t->global_batch, t->micro_batch);
        return false;
    }
    int64_t round = (int64_t)t->micro_batch * t->lanes;
    if (t->global_batch % round != 0) {
        problem_add(p, "train.global_batch: %d is not a multiple of micro_batch x lanes = %" PRId64, t->global_batch,
                    round);
        return false;
    }
    return true;
}

static void check_profile(const Trainyard__V1__ProfileSpec *f, int64_t steps, struct spec_problems *p) {
    if (!f || (f->from == 0 && f->to == 0))
        return;
    if (f->from < 1 || f->from > steps)
        problem_add(p, "train.profile.from: %" PRId64 " is not from 1 to %" PRId64, f->from, steps);
    else if (f->to < f->from || f->to > steps)
        problem_add(p, "train.profile.to: %" PRId64 " is not from %" PRId64 " to %" PRId64, f->to, f->from, steps);
    else if (f->to - f->from >= PROFILED_STEPS_MAX)
        problem_add(p, "train.profile.to: %" PRId64 " steps are more than the %d that a profile may cover",
                    f->to - f->from + 1, PROFILED_STEPS_MAX);
}

/* warmup_steps, min_lr and decay_steps have the same meaning in every schedule that has them. */
static void check_schedule(const Trainyard__V1__ScheduleSpec *s, int64_t steps, double lr, struct spec_problems *p) {
    const ProtobufCMessage *kind = spec_member_message(&s->base);
    const char *name = spec_member(&s->base)->name;
    const int64_t *warmup = spec_value(kind, "warmup_steps"), *decay = spec_value(kind, "decay_steps");
    const double *min_lr = spec_value(kind, "min_lr");
    if (warmup && *warmup > steps)
        problem_add(p, "train.learning_rate_schedule.%s.warmup_steps: %" PRId64 " is more than train.steps = %" PRId64,
                    name, *warmup, steps);
    else if (decay && warmup && *warmup >= 0 && *decay > steps - *warmup)
        problem_add(p,
                    "train.learning_rate_schedule.%s.decay_steps: %" PRId64 " is more than the %" PRId64
                    " steps after warm-up",
                    name, *decay, steps - *warmup);
    if (min_lr && *min_lr > lr) {
        char shown[32], max[32];
        codec_double_text(*min_lr, shown);
        codec_double_text(lr, max);
        problem_add(p, "train.learning_rate_schedule.%s.min_lr: %s is more than the optimizer's lr = %s", name, shown,
                    max);
    }
}

void rules_train(const Trainyard__V1__TrainSpec *t, struct spec_problems *p) {
    const ProtobufCMessage *optimizer = spec_member_message(&t->optimizer->base);
    const bool steps = rules_field_good(&t->base, "steps");
    if (steps && rules_field_good(optimizer, "lr"))
        check_schedule(t->learning_rate_schedule, t->steps, *(const double *)spec_value(optimizer, "lr"), p);
    if (t->optimizer->kind_case == TRAINYARD__V1__OPTIMIZER_SPEC__KIND_SGD && t->optimizer->sgd->nesterov &&
        t->optimizer->sgd->momentum == 0)
        problem_add(p, "train.optimizer.sgd.nesterov: needs a momentum above 0");
    if (t->loss_scale && strcmp(t->precision, "fp16") != 0 && rules_field_good(&t->base, "precision"))
        problem_add(p, "train.loss_scale: is for precision fp16, and train.precision is %s", t->precision);
    if (strcmp(t->learning_rate_scaling, "none") != 0 && rules_field_good(&t->base, "learning_rate_scaling") &&
        !t->_reference_batch_case)
        problem_add(p, "train.reference_batch: must be given with learning_rate_scaling %s", t->learning_rate_scaling);
    if (steps)
        check_profile(t->profile, t->steps, p);
}
