#include "api/spec/defaults.h"

#include "api/codec/message.h"

#include <string.h>

/* More lanes than this would only cost buffers; 8 ranks is what the reproducible layouts are promised for. */
enum { MOST_LANES = 8 };

/* Sets an `optional` field, when it is not set, with its case's constant. */
#define DEFAULT(msg, field, id, value)                                                                                 \
    do {                                                                                                               \
        if (!(msg)->_##field##_case) {                                                                                 \
            (msg)->field = (value);                                                                                    \
            (msg)->_##field##_case = (id);                                                                             \
        }                                                                                                              \
    } while (0)

/* As DEFAULT for text, which the message owns. */
#define DEFAULT_TEXT(msg, field, id, value)                                                                            \
    do {                                                                                                               \
        if (!(msg)->_##field##_case) {                                                                                 \
            char *copy_ = strdup(value);                                                                               \
            if (!copy_)                                                                                                \
                return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a job spec");                                  \
            (msg)->field = copy_;                                                                                      \
            (msg)->_##field##_case = (id);                                                                             \
        }                                                                                                              \
    } while (0)

/* Makes a message that is not there; it may then stay empty. */
#define MAKE(at, desc)                                                                                                 \
    do {                                                                                                               \
        if (!(at)) {                                                                                                   \
            ProtobufCMessage *made_ = NULL;                                                                            \
            TRY(message_new(&(desc), &made_, e));                                                                      \
            (at) = (void *)made_;                                                                                      \
        }                                                                                                              \
    } while (0)

int32_t largest_power_of_two_dividing(int32_t n) {
    int32_t power = 1;
    while (power < MOST_LANES && n % (power * 2) == 0)
        power *= 2;
    return power;
}

static status_t fill_data(Trainyard__V1__JobSpec *spec, struct err *e) {
    if (!spec->data || spec->data->source_case != TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT)
        return ST_OK;
    Trainyard__V1__TextData *text = spec->data->text;
    DEFAULT_TEXT(text, tokenizer, TRAINYARD__V1__TEXT_DATA___TOKENIZER_TOKENIZER, "char");
    DEFAULT(text, validation_fraction, TRAINYARD__V1__TEXT_DATA___VALIDATION_FRACTION_VALIDATION_FRACTION, 0.1);
    return ST_OK;
}

static void fill_batches(Trainyard__V1__TrainSpec *t) {
    if (t->global_batch <= 0)
        return;
    DEFAULT(t, micro_batch, TRAINYARD__V1__TRAIN_SPEC___MICRO_BATCH_MICRO_BATCH,
            t->global_batch / largest_power_of_two_dividing(t->global_batch));
    if (t->micro_batch > 0 && t->global_batch % t->micro_batch == 0)
        DEFAULT(t, lanes, TRAINYARD__V1__TRAIN_SPEC___LANES_LANES,
                largest_power_of_two_dividing(t->global_batch / t->micro_batch));
}

static status_t fill_optimizer(Trainyard__V1__TrainSpec *t, struct err *e) {
    MAKE(t->optimizer, trainyard__v1__optimizer_spec__descriptor);
    if (t->optimizer->kind_case == TRAINYARD__V1__OPTIMIZER_SPEC__KIND__NOT_SET) {
        t->optimizer->adamw = NULL;
        MAKE(t->optimizer->adamw, trainyard__v1__adam_w__descriptor);
        t->optimizer->kind_case = TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAMW;
    }
    Trainyard__V1__AdamW *adamw = t->optimizer->adamw;
    DEFAULT(adamw, lr, TRAINYARD__V1__ADAM_W___LR_LR, 3e-4);
    DEFAULT(adamw, beta1, TRAINYARD__V1__ADAM_W___BETA1_BETA1, 0.9);
    DEFAULT(adamw, beta2, TRAINYARD__V1__ADAM_W___BETA2_BETA2, 0.95);
    DEFAULT(adamw, eps, TRAINYARD__V1__ADAM_W___EPS_EPS, 1e-8);
    DEFAULT(adamw, weight_decay, TRAINYARD__V1__ADAM_W___WEIGHT_DECAY_WEIGHT_DECAY, 0.1);
    MAKE(t->learning_rate_schedule, trainyard__v1__schedule_spec__descriptor);
    if (t->learning_rate_schedule->kind_case == TRAINYARD__V1__SCHEDULE_SPEC__KIND__NOT_SET) {
        t->learning_rate_schedule->constant = NULL;
        MAKE(t->learning_rate_schedule->constant, trainyard__v1__constant_schedule__descriptor);
        t->learning_rate_schedule->kind_case = TRAINYARD__V1__SCHEDULE_SPEC__KIND_CONSTANT;
    }
    return ST_OK;
}

static status_t fill_train(Trainyard__V1__JobSpec *spec, struct err *e) {
    MAKE(spec->train, trainyard__v1__train_spec__descriptor);
    Trainyard__V1__TrainSpec *t = spec->train;
    fill_batches(t);
    TRY(fill_optimizer(t, e));
    DEFAULT(t, clip_norm, TRAINYARD__V1__TRAIN_SPEC___CLIP_NORM_CLIP_NORM, 1.0);
    DEFAULT_TEXT(t, precision, TRAINYARD__V1__TRAIN_SPEC___PRECISION_PRECISION, "fp32");
    DEFAULT_TEXT(t, numerics, TRAINYARD__V1__TRAIN_SPEC___NUMERICS_NUMERICS, "reproducible");
    DEFAULT_TEXT(t, reduce, TRAINYARD__V1__TRAIN_SPEC___REDUCE_REDUCE, "step");
    MAKE(t->eval, trainyard__v1__eval_spec__descriptor);
    DEFAULT(t->eval, batches, TRAINYARD__V1__EVAL_SPEC___BATCHES_BATCHES, 20);
    return ST_OK;
}

static status_t fill_run(Trainyard__V1__JobSpec *spec, struct err *e) {
    MAKE(spec->parallel, trainyard__v1__parallel_spec__descriptor);
    DEFAULT(spec->parallel, data, TRAINYARD__V1__PARALLEL_SPEC___DATA_DATA, 1);
    DEFAULT(spec->parallel, pipeline, TRAINYARD__V1__PARALLEL_SPEC___PIPELINE_PIPELINE, 1);
    DEFAULT_TEXT(spec->parallel, pipeline_schedule, TRAINYARD__V1__PARALLEL_SPEC___PIPELINE_SCHEDULE_PIPELINE_SCHEDULE,
                 "1f1b");
    MAKE(spec->checkpoint, trainyard__v1__checkpoint_spec__descriptor);
    DEFAULT(spec->checkpoint, every, TRAINYARD__V1__CHECKPOINT_SPEC___EVERY_EVERY, 500);
    DEFAULT(spec->checkpoint, keep_last, TRAINYARD__V1__CHECKPOINT_SPEC___KEEP_LAST_KEEP_LAST, 3);
    MAKE(spec->resources, trainyard__v1__resources_spec__descriptor);
    DEFAULT_TEXT(spec->resources, accelerator, TRAINYARD__V1__RESOURCES_SPEC___ACCELERATOR_ACCELERATOR, "cpu");
    MAKE(spec->retry, trainyard__v1__retry_spec__descriptor);
    DEFAULT(spec->retry, max_restarts, TRAINYARD__V1__RETRY_SPEC___MAX_RESTARTS_MAX_RESTARTS, 3);
    DEFAULT_TEXT(spec, queue, TRAINYARD__V1__JOB_SPEC___QUEUE_QUEUE, "default");
    return ST_OK;
}

status_t defaults_fill(Trainyard__V1__JobSpec *spec, struct err *e) {
    TRY(fill_data(spec, e));
    TRY(fill_train(spec, e));
    return fill_run(spec, e);
}
