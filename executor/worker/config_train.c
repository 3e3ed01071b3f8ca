#include "executor/worker/config_parts.h"

#include <string.h>

status_t config_choice(const char *field, const char *word, const char *const *choices, int *ret, struct err *e) {
    for (int i = 0; choices[i]; i++)
        if (word && strcmp(word, choices[i]) == 0) {
            *ret = i;
            return ST_OK;
        }
    return err_set(e, ST_INVALID_ARGUMENT, "%s: '%s' is not a choice", field, word ? word : "");
}

/* ---- what drives the weights ---- */

static void fill_schedule(struct engine_train *t, const Trainyard__V1__ScheduleSpec *s) {
    t->schedule.kind = ENGINE_SCHEDULE_CONSTANT;
    switch (s ? s->kind_case : TRAINYARD__V1__SCHEDULE_SPEC__KIND__NOT_SET) {
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_COSINE:
        t->schedule.kind = ENGINE_SCHEDULE_COSINE;
        t->schedule.warmup_steps = s->cosine->warmup_steps;
        t->schedule.min_lr = s->cosine->min_lr;
        break;
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_LINEAR:
        t->schedule.kind = ENGINE_SCHEDULE_LINEAR;
        t->schedule.warmup_steps = s->linear->warmup_steps;
        t->schedule.min_lr = s->linear->min_lr;
        break;
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_WSD:
        t->schedule.kind = ENGINE_SCHEDULE_WSD;
        t->schedule.warmup_steps = s->wsd->warmup_steps;
        t->schedule.decay_steps = s->wsd->decay_steps;
        t->schedule.min_lr = s->wsd->min_lr;
        break;
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_CONSTANT: t->schedule.warmup_steps = s->constant->warmup_steps; break;
    default: break;
    }
}

static status_t fill_rate_scaling(struct engine_train *t, const Trainyard__V1__TrainSpec *spec, struct err *e) {
    static const char *const scalings[] = {
        [ENGINE_RATE_AS_IT_IS] = "none", [ENGINE_RATE_LINEAR] = "linear", [ENGINE_RATE_SQRT] = "sqrt", NULL
    };
    int choice = 0;
    TRY(config_choice("train.learning_rate_scaling", spec->learning_rate_scaling, scalings, &choice, e));
    t->rate_scaling.kind = (enum engine_rate_scaling)choice;
    t->rate_scaling.reference_batch = spec->_reference_batch_case ? spec->reference_batch : 0;
    return ST_OK;
}

static struct adamw_settings adamw_of(const Trainyard__V1__AdamW *o) {
    return (struct adamw_settings){
        .lr = o->lr, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps, .weight_decay = o->weight_decay
    };
}

static struct optimizer_config adafactor_of(const Trainyard__V1__Adafactor *o) {
    return (struct optimizer_config){ .kind = &optimizer_adafactor,
                                      .adafactor = { .lr = o->lr,
                                                     .beta2_decay = o->beta2_decay,
                                                     .eps1 = o->eps1,
                                                     .eps2 = o->eps2,
                                                     .clip_threshold = o->clip_threshold,
                                                     .weight_decay = o->weight_decay } };
}

static struct optimizer_config muon_of(const Trainyard__V1__Muon *o) {
    struct optimizer_config ret = { .kind = &optimizer_muon,
                                    .muon = { .lr = o->lr,
                                              .momentum = o->momentum,
                                              .weight_decay = o->weight_decay,
                                              .iterations = o->iterations,
                                              .nesterov = o->nesterov } };
    if (o->adamw)
        ret.muon.adamw = adamw_of(o->adamw);
    return ret;
}

static status_t fill_optimizer(struct engine_train *t, const Trainyard__V1__OptimizerSpec *o, struct err *e) {
    switch (o ? o->kind_case : TRAINYARD__V1__OPTIMIZER_SPEC__KIND__NOT_SET) {
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAMW:
        t->optimizer = (struct optimizer_config){ .kind = &optimizer_adamw, .adamw = adamw_of(o->adamw) };
        return ST_OK;
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_SGD:
        t->optimizer = (struct optimizer_config){ .kind = &optimizer_sgd,
                                                  .sgd = { .lr = o->sgd->lr,
                                                           .momentum = o->sgd->momentum,
                                                           .weight_decay = o->sgd->weight_decay,
                                                           .nesterov = o->sgd->nesterov } };
        return ST_OK;
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_LION:
        t->optimizer = (struct optimizer_config){ .kind = &optimizer_lion,
                                                  .lion = { .lr = o->lion->lr,
                                                            .beta1 = o->lion->beta1,
                                                            .beta2 = o->lion->beta2,
                                                            .weight_decay = o->lion->weight_decay } };
        return ST_OK;
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAFACTOR: t->optimizer = adafactor_of(o->adafactor); return ST_OK;
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_MUON: t->optimizer = muon_of(o->muon); return ST_OK;
    default: return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer: it is missing");
    }
}

/* ---- how a step is computed ---- */

static status_t fill_words(struct engine_train *t, const Trainyard__V1__TrainSpec *spec, struct err *e) {
    int choice = 0;
    TRY(config_choice("train.reduce", spec->reduce, PLAN_REDUCE_WORDS, &choice, e));
    t->reduce = (enum plan_reduce)choice;
    TRY(config_choice("train.numerics", spec->numerics, ENGINE_NUMERICS_WORDS, &choice, e));
    t->numerics = (enum engine_numerics)choice;
    TRY(config_choice("train.precision", spec->precision, ENGINE_PRECISION_WORDS, &choice, e));
    t->precision = (enum engine_precision)choice;
    TRY(config_choice("train.recompute", spec->recompute, PLAN_RECOMPUTE_WORDS, &choice, e));
    t->recompute = (enum plan_recompute)choice;
    return ST_OK;
}

static void fill_numbers(struct engine_train *t, const Trainyard__V1__TrainSpec *spec) {
    t->steps = spec->steps;
    t->global_batch = spec->global_batch;
    t->micro_batch = spec->_micro_batch_case ? spec->micro_batch : 0;
    t->lanes = spec->_lanes_case ? spec->lanes : 0;
    t->seed = spec->seed;
    t->clip_norm = spec->clip_norm;
    t->clip_value = spec->clip_value;
    t->loss_scale.initial = spec->loss_scale ? spec->loss_scale->initial : 0;
    t->loss_scale.growth_interval = spec->loss_scale ? spec->loss_scale->growth_interval : 0;
    t->ema_decay = spec->ema ? spec->ema->decay : 0;
    t->skip_spikes.z_score = spec->skip_spikes ? spec->skip_spikes->z_score : 0;
    t->skip_spikes.window = spec->skip_spikes ? spec->skip_spikes->window : 0;
    t->eval.every = spec->eval ? spec->eval->every : 0;
    t->eval.batches = spec->eval ? spec->eval->batches : 0;
}

status_t config_train(struct engine_config *c, const Trainyard__V1__TrainSpec *train, struct err *e) {
    if (!train)
        return err_set(e, ST_INVALID_ARGUMENT, "train: is missing");
    fill_numbers(&c->train, train);
    fill_schedule(&c->train, train->learning_rate_schedule);
    TRY(fill_rate_scaling(&c->train, train, e));
    TRY(fill_optimizer(&c->train, train->optimizer, e));
    TRY(fill_words(&c->train, train, e));
    c->profile.from = train->profile ? train->profile->from : 0;
    c->profile.to = train->profile ? train->profile->to : 0;
    c->gradients_every = train->inspect ? train->inspect->gradients_every : 0;
    return ST_OK;
}

status_t config_layout(struct engine_config *c, const Trainyard__V1__ParallelSpec *parallel, struct err *e) {
    int choice = SCHEDULE_1F1B;
    if (parallel)
        TRY(config_choice("parallel.pipeline_schedule", parallel->pipeline_schedule, PLAN_SCHEDULE_WORDS, &choice, e));
    c->layout.data = parallel ? parallel->data : 1;
    c->layout.pipeline = parallel ? parallel->pipeline : 1;
    c->layout.zero = parallel ? parallel->zero : 0;
    c->layout.schedule = (enum plan_schedule_kind)choice;
    c->layout.virtual_stages = parallel ? parallel->virtual_stages : 1;
    if (parallel && parallel->nccl)
        c->tuning = (struct collective_tuning){ .buffer_bytes = parallel->nccl->buffer_bytes,
                                                .algorithm = parallel->nccl->algorithm,
                                                .protocol = parallel->nccl->protocol };
    return ST_OK;
}
