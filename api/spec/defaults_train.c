#include "api/spec/defaults_fill.h"

/* More lanes than this would only cost buffers; 8 ranks is what the reproducible layouts are promised for. */
enum { MOST_LANES = 8 };

int32_t largest_power_of_two_dividing(int32_t n) {
    int32_t power = 1;
    while (power < MOST_LANES && n % (power * 2) == 0)
        power *= 2;
    return power;
}

/* With `auto` the plan decides: lanes follow from what micro_batch becomes. */
static void fill_batches(Trainyard__V1__TrainSpec *t) {
    if (t->global_batch <= 0)
        return;
    if (!t->micro_batch_auto)
        FILL(t, TRAIN_SPEC, micro_batch, MICRO_BATCH, t->global_batch / largest_power_of_two_dividing(t->global_batch));
    if (t->_micro_batch_case && t->micro_batch > 0 && t->global_batch % t->micro_batch == 0)
        FILL(t, TRAIN_SPEC, lanes, LANES, largest_power_of_two_dividing(t->global_batch / t->micro_batch));
}

static void fill_adamw(Trainyard__V1__AdamW *adamw) {
    FILL(adamw, ADAM_W, lr, LR, 3e-4);
    FILL(adamw, ADAM_W, beta1, BETA1, 0.9);
    FILL(adamw, ADAM_W, beta2, BETA2, 0.95);
    FILL(adamw, ADAM_W, eps, EPS, 1e-8);
    FILL(adamw, ADAM_W, weight_decay, WEIGHT_DECAY, 0.1);
}

static status_t fill_muon(Trainyard__V1__Muon *muon, struct err *e) {
    FILL(muon, MUON, lr, LR, 0.02);
    FILL(muon, MUON, momentum, MOMENTUM, 0.95);
    FILL(muon, MUON, nesterov, NESTEROV, true);
    FILL(muon, MUON, iterations, ITERATIONS, 5);
    FILL(muon, MUON, weight_decay, WEIGHT_DECAY, 0.1);
    FILL_PART(muon->adamw, trainyard__v1__adam_w__descriptor);
    fill_adamw(muon->adamw);
    return ST_OK;
}

static void fill_adafactor(Trainyard__V1__Adafactor *o) {
    FILL(o, ADAFACTOR, lr, LR, 0.01);
    FILL(o, ADAFACTOR, beta2_decay, BETA2_DECAY, 0.8);
    FILL(o, ADAFACTOR, eps1, EPS1, 1e-30);
    FILL(o, ADAFACTOR, eps2, EPS2, 1e-3);
    FILL(o, ADAFACTOR, clip_threshold, CLIP_THRESHOLD, 1);
    FILL(o, ADAFACTOR, weight_decay, WEIGHT_DECAY, 0);
}

static status_t fill_optimizer(Trainyard__V1__OptimizerSpec *o, struct err *e) {
    switch (o->kind_case) {
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAMW: fill_adamw(o->adamw); break;
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_SGD:
        FILL(o->sgd, SGD, lr, LR, 0.1);
        FILL(o->sgd, SGD, momentum, MOMENTUM, 0.9);
        FILL(o->sgd, SGD, weight_decay, WEIGHT_DECAY, 1e-4);
        break;
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_LION:
        FILL(o->lion, LION, lr, LR, 1e-4);
        FILL(o->lion, LION, beta1, BETA1, 0.9);
        FILL(o->lion, LION, beta2, BETA2, 0.99);
        FILL(o->lion, LION, weight_decay, WEIGHT_DECAY, 1);
        break;
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAFACTOR: fill_adafactor(o->adafactor); break;
    case TRAINYARD__V1__OPTIMIZER_SPEC__KIND_MUON: return fill_muon(o->muon, e);
    default: break;
    }
    return ST_OK;
}

/* A tenth of the steps, or what warm-up leaves. */
static int64_t tenth_after(int64_t warmup, int64_t steps) {
    if (steps <= 0 || warmup < 0 || warmup > steps)
        return 0;
    int64_t tenth = steps / 10 + (steps % 10 != 0);
    return tenth < steps - warmup ? tenth : steps - warmup;
}

static status_t fill_schedule(Trainyard__V1__TrainSpec *t, struct err *e) {
    FILL_PART(t->learning_rate_schedule, trainyard__v1__schedule_spec__descriptor);
    Trainyard__V1__ScheduleSpec *s = t->learning_rate_schedule;
    if (s->kind_case == TRAINYARD__V1__SCHEDULE_SPEC__KIND__NOT_SET) {
        s->constant = NULL;
        FILL_PART(s->constant, trainyard__v1__constant_schedule__descriptor);
        s->kind_case = TRAINYARD__V1__SCHEDULE_SPEC__KIND_CONSTANT;
    }
    if (s->kind_case == TRAINYARD__V1__SCHEDULE_SPEC__KIND_WSD)
        FILL(s->wsd, WSD_SCHEDULE, decay_steps, DECAY_STEPS, tenth_after(s->wsd->warmup_steps, t->steps));
    return ST_OK;
}

static status_t fill_steps(Trainyard__V1__TrainSpec *t, struct err *e) {
    if (strcmp(t->precision, "fp16") == 0)
        FILL_PART(t->loss_scale, trainyard__v1__loss_scale_spec__descriptor);
    if (t->loss_scale) {
        FILL(t->loss_scale, LOSS_SCALE_SPEC, initial, INITIAL, 65536);
        FILL(t->loss_scale, LOSS_SCALE_SPEC, growth_interval, GROWTH_INTERVAL, 2000);
    }
    if (t->skip_spikes)
        FILL(t->skip_spikes, SKIP_SPIKES_SPEC, window, WINDOW, 100);
    FILL_PART(t->eval, trainyard__v1__eval_spec__descriptor);
    FILL(t->eval, EVAL_SPEC, batches, BATCHES, 20);
    return ST_OK;
}

status_t defaults_train(Trainyard__V1__TrainSpec *t, int32_t zero, struct err *e) {
    fill_batches(t);
    FILL_PART(t->optimizer, trainyard__v1__optimizer_spec__descriptor);
    if (t->optimizer->kind_case == TRAINYARD__V1__OPTIMIZER_SPEC__KIND__NOT_SET) {
        t->optimizer->adamw = NULL;
        FILL_PART(t->optimizer->adamw, trainyard__v1__adam_w__descriptor);
        t->optimizer->kind_case = TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAMW;
    }
    TRY(fill_optimizer(t->optimizer, e));
    TRY(fill_schedule(t, e));
    FILL(t, TRAIN_SPEC, clip_norm, CLIP_NORM, 1.0);
    FILL(t, TRAIN_SPEC, clip_value, CLIP_VALUE, 0);
    FILL_TEXT(t, TRAIN_SPEC, precision, PRECISION, "fp32");
    FILL_TEXT(t, TRAIN_SPEC, numerics, NUMERICS, "reproducible");
    FILL_TEXT(t, TRAIN_SPEC, reduce, REDUCE, zero >= 2 ? "micro_batch" : "step");
    FILL_TEXT(t, TRAIN_SPEC, recompute, RECOMPUTE, "none");
    FILL_TEXT(t, TRAIN_SPEC, learning_rate_scaling, LEARNING_RATE_SCALING, "none");
    return fill_steps(t, e);
}
