#include "api/codec/text.h"
#include "api/spec/rules_parts.h"

#include <inttypes.h>
#include <stdio.h>

static const double MOST_LR = 1e30;

/* A field of one optimizer: `train.optimizer.<kind>.<name>`. */
static const char *below(char path[96], const char *kind, const char *name) {
    snprintf(path, 96, "train.optimizer.%s.%s", kind, name);
    return path;
}

static bool check_lr(const char *kind, double lr, struct spec_problems *p) {
    if (lr > 0 && lr <= MOST_LR) /* false for NaN */
        return true;
    char shown[32];
    codec_double_text(lr, shown);
    problem_add(p, "train.optimizer.%s.lr: %s is not above 0 and at most 1e+30", kind, shown);
    return false;
}

static void check_decay(const char *kind, double decay, struct spec_problems *p) {
    char path[96];
    check_real(p, below(path, kind, "weight_decay"), decay, 0, 100);
}

static bool check_adamw(const char *kind, const Trainyard__V1__AdamW *adamw, struct spec_problems *p) {
    char path[96];
    bool lr = check_lr(kind, adamw->lr, p);
    check_real_below(p, below(path, kind, "beta1"), adamw->beta1, 0, 1);
    check_real_below(p, below(path, kind, "beta2"), adamw->beta2, 0, 1);
    /* Less than this and fp32 gradients of zero divide by zero. */
    check_real(p, below(path, kind, "eps"), adamw->eps, 1e-30, 1);
    check_decay(kind, adamw->weight_decay, p);
    return lr;
}

static bool check_sgd(const Trainyard__V1__Sgd *sgd, struct spec_problems *p) {
    bool lr = check_lr("sgd", sgd->lr, p);
    check_real_below(p, "train.optimizer.sgd.momentum", sgd->momentum, 0, 1);
    if (sgd->nesterov && sgd->momentum == 0)
        problem_add(p, "train.optimizer.sgd.nesterov: needs a momentum above 0");
    check_decay("sgd", sgd->weight_decay, p);
    return lr;
}

static bool check_lion(const Trainyard__V1__Lion *lion, struct spec_problems *p) {
    bool lr = check_lr("lion", lion->lr, p);
    check_real_below(p, "train.optimizer.lion.beta1", lion->beta1, 0, 1);
    check_real_below(p, "train.optimizer.lion.beta2", lion->beta2, 0, 1);
    check_decay("lion", lion->weight_decay, p);
    return lr;
}

static bool check_adafactor(const Trainyard__V1__Adafactor *o, struct spec_problems *p) {
    bool lr = check_lr("adafactor", o->lr, p);
    check_real(p, "train.optimizer.adafactor.beta2_decay", o->beta2_decay, 0.01, 1);
    check_real(p, "train.optimizer.adafactor.eps1", o->eps1, 1e-38, 1);
    check_real(p, "train.optimizer.adafactor.eps2", o->eps2, 0, 1);
    check_real(p, "train.optimizer.adafactor.clip_threshold", o->clip_threshold, 1e-6, 1e6);
    check_decay("adafactor", o->weight_decay, p);
    return lr;
}

static bool check_muon(const Trainyard__V1__Muon *muon, struct spec_problems *p) {
    bool lr = check_lr("muon", muon->lr, p);
    check_real_below(p, "train.optimizer.muon.momentum", muon->momentum, 0, 1);
    check_int(p, "train.optimizer.muon.iterations", muon->iterations, 1, 20);
    check_decay("muon", muon->weight_decay, p);
    bool rest = check_adamw("muon.adamw", muon->adamw, p);
    return lr && rest;
}

static bool check_kind(const Trainyard__V1__OptimizerSpec *o, double *ret_lr, struct spec_problems *p) {
    switch (o->kind_case) {
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_SGD: *ret_lr = o->sgd->lr; return check_sgd(o->sgd, p);
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_LION: *ret_lr = o->lion->lr; return check_lion(o->lion, p);
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAFACTOR:
        *ret_lr = o->adafactor->lr;
        return check_adafactor(o->adafactor, p);
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_MUON: *ret_lr = o->muon->lr; return check_muon(o->muon, p);
    default: *ret_lr = o->adamw->lr; return check_adamw("adamw", o->adamw, p);
    }
}

static void check_warmup(const char *kind, int64_t warmup, int64_t steps, struct spec_problems *p) {
    if (warmup < 0 || warmup > steps)
        problem_add(p,
                    "train.learning_rate_schedule.%s.warmup_steps: %" PRId64 " is not from 0 to train.steps = %" PRId64,
                    kind, warmup, steps);
}

static void check_min_lr(const char *kind, double min_lr, double lr, struct spec_problems *p) {
    if (min_lr >= 0 && min_lr <= lr)
        return;
    char shown[32], most[32];
    codec_double_text(min_lr, shown);
    codec_double_text(lr, most);
    problem_add(p, "train.learning_rate_schedule.%s.min_lr: %s is not from 0 to the optimizer's lr = %s", kind, shown,
                most);
}

static void check_wsd(const Trainyard__V1__WsdSchedule *wsd, int64_t steps, double lr, struct spec_problems *p) {
    check_warmup("wsd", wsd->warmup_steps, steps, p);
    if (wsd->warmup_steps >= 0 && wsd->warmup_steps <= steps &&
        (wsd->decay_steps < 0 || wsd->decay_steps > steps - wsd->warmup_steps))
        problem_add(p,
                    "train.learning_rate_schedule.wsd.decay_steps: %" PRId64 " is not from 0 to the %" PRId64
                    " steps after warm-up",
                    wsd->decay_steps, steps - wsd->warmup_steps);
    check_min_lr("wsd", wsd->min_lr, lr, p);
}

static void check_schedule(const Trainyard__V1__ScheduleSpec *s, int64_t steps, double lr, struct spec_problems *p) {
    switch (s->kind_case) {
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_COSINE:
        check_warmup("cosine", s->cosine->warmup_steps, steps, p);
        check_min_lr("cosine", s->cosine->min_lr, lr, p);
        break;
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_LINEAR:
        check_warmup("linear", s->linear->warmup_steps, steps, p);
        check_min_lr("linear", s->linear->min_lr, lr, p);
        break;
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_CONSTANT:
        check_warmup("constant", s->constant->warmup_steps, steps, p);
        break;
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_WSD: check_wsd(s->wsd, steps, lr, p); break;
    default: break;
    }
}

void rules_optimizer(const Trainyard__V1__TrainSpec *t, struct spec_problems *p) {
    double lr;
    if (check_kind(t->optimizer, &lr, p) && t->steps >= 1 && t->steps <= SPEC_MOST_STEPS)
        check_schedule(t->learning_rate_schedule, t->steps, lr, p);
}
