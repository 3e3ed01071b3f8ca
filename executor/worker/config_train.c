/* Maps `train` and `parallel` of a resolved spec to the engine's configuration, field by field. Words of the
 * spec (precision, recompute, ...) become enum values by their place in the engine's own list of words, so that a word
 * exists in one place. A part that is absent leaves zeros, which switch it off. */
#include "executor/worker/config_parts.h"

/* ---- what drives the weights ---- */

static status_t fill_rate_scaling(struct engine_train *t, const Trainyard__V1__TrainSpec *spec, struct err *e) {
    static const char *const scalings[] = {
        [ENGINE_RATE_UNSCALED] = "none", [ENGINE_RATE_LINEAR] = "linear", [ENGINE_RATE_SQRT] = "sqrt", NULL
    };
    int choice = 0;
    TRY(config_choice("train.learning_rate_scaling", spec->learning_rate_scaling, scalings, &choice, e));
    t->rate_scaling.kind = (enum engine_rate_scaling)choice;
    t->rate_scaling.reference_batch = spec->_reference_batch_case ? spec->reference_batch : 0;
    return ST_OK;
}

/* ---- how a step is computed ---- */

static status_t fill_words(struct engine_train *t, const Trainyard__V1__TrainSpec *spec, struct err *e) {
    int choice = 0;
    TRY(config_choice("train.reduce", spec->reduce, PLAN_REDUCE_WORDS, &choice, e));
    t->reduce = (enum plan_reduce)choice;
    TRY(config_choice("train.numerics", spec->numerics, ENGINE_NUMERICS_NAMES, &choice, e));
    t->numerics = (enum engine_numerics)choice;
    TRY(config_choice("train.precision", spec->precision, ENGINE_PRECISION_NAMES, &choice, e));
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
    t->ema.decay = spec->ema ? spec->ema->decay : 0;
    t->ema.evaluate = spec->ema && spec->ema->evaluate;
    t->skip_spikes.z_score = spec->skip_spikes ? spec->skip_spikes->z_score : 0;
    t->skip_spikes.window = spec->skip_spikes ? spec->skip_spikes->window : 0;
    t->max_not_finite = spec->max_not_finite;
    t->eval.every = spec->eval ? spec->eval->every : 0;
    t->eval.batches = spec->eval && spec->eval->_batches_case ? spec->eval->batches : 0;
}

status_t config_train(struct engine_config *c, const Trainyard__V1__TrainSpec *train, struct err *e) {
    if (!train)
        return err_set(e, ST_INVALID_ARGUMENT, "train: is missing");
    fill_numbers(&c->train, train);
    TRY(config_rate(&c->train, train->learning_rate_schedule, e));
    TRY(fill_rate_scaling(&c->train, train, e));
    TRY(config_optimizer(&c->train, train->optimizer, e));
    TRY(fill_words(&c->train, train, e));
    int changed = ENGINE_DATA_REFUSE;
    if (train->_changed_data_case) /* specs that older releases stored lack it */
        TRY(config_choice("train.changed_data", train->changed_data, ENGINE_CHANGED_DATA_NAMES, &changed, e));
    c->checkpoint.changed_data = (enum engine_changed_data)changed;
    c->profile.from = train->profile ? train->profile->from : 0;
    c->profile.to = train->profile ? train->profile->to : 0;
    c->gradients_every = train->inspect ? train->inspect->gradients_every : 0;
    return ST_OK;
}

status_t config_layout(struct engine_config *c, const Trainyard__V1__ParallelSpec *parallel, struct err *e) {
    c->layout.schedule = parallel ? schedule_kind_find(parallel->pipeline_schedule) : &schedule_1f1b;
    if (!c->layout.schedule)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel.pipeline_schedule: this build does not have '%s'",
                       parallel->pipeline_schedule);
    c->layout.data = parallel ? parallel->data : 1;
    c->layout.pipeline = parallel ? parallel->pipeline : 1;
    c->layout.zero = parallel ? parallel->zero : 0;
    c->layout.virtual_stages = parallel ? parallel->virtual_stages : 1;
    if (parallel && parallel->nccl)
        c->tuning = (struct collective_tuning){ .buffer_bytes = parallel->nccl->buffer_bytes,
                                                .algorithm = parallel->nccl->algorithm,
                                                .protocol = parallel->nccl->protocol };
    return ST_OK;
}
