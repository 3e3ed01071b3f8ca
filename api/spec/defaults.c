/* The sources of a mixture are sorted and get its tokenizer. Then there are two passes. The first gives every field
 * that is absent and has an option `default` that value, from the top down, so that a message which a default creates
 * gets its own defaults too. The second computes the defaults that follow from other fields (`computed` in spec.proto).
 * No default outside `parallel` depends on `parallel`: it would give one spec several histories. */
#include "api/spec/defaults.h"

#include "api/codec/message.h"
#include "api/codec/scalar.h"
#include "api/spec/data_sources.h"
#include "api/spec/fields.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/limits.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN_MULTIPLE = 32 };

/* ---- mixtures ---- */

/* The order of a map's entries means nothing, and the data of a job must not depend on it. */
static int by_key(const void *a, const void *b) {
    const Trainyard__V1__MixtureData__SourcesEntry *x = *(Trainyard__V1__MixtureData__SourcesEntry *const *)a,
                                                   *y = *(Trainyard__V1__MixtureData__SourcesEntry *const *)b;
    return strcmp(x->key, y->key);
}

static int by_weight_key(const void *a, const void *b) {
    const Trainyard__V1__MixturePhase__WeightsEntry *x = *(Trainyard__V1__MixturePhase__WeightsEntry *const *)a,
                                                    *y = *(Trainyard__V1__MixturePhase__WeightsEntry *const *)b;
    return strcmp(x->key, y->key);
}

static void place_text(const ProtobufCMessage *source, const char *name, const char *text) {
    ProtobufCMessage *msg = (ProtobufCMessage *)(uintptr_t)source;
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(msg->descriptor, name);
    char **at = field_value(msg, f);
    if (field_has_presence(f) ? field_is_set(msg, f) : **at)
        return;
    field_clear(msg, f);
    *at = alloc_copy_text(text);
    if (field_is_oneof(f))
        oneof_set_case(msg, f);
}

static void fill_mixture(Trainyard__V1__MixtureData *m) {
    if (m->n_sources > 0)
        qsort(m->sources, m->n_sources, sizeof *m->sources, by_key);
    for (size_t p = 0; p < m->n_phases; p++)
        if (m->phases[p]->n_weights > 0)
            qsort(m->phases[p]->weights, m->phases[p]->n_weights, sizeof *m->phases[p]->weights, by_weight_key);
    for (size_t i = 0; i < m->n_sources && *m->tokenizer; i++) {
        const ProtobufCMessage *source = data_sources_mixed(m->sources[i]->value, NULL);
        if (source)
            place_text(source, "tokenizer", m->tokenizer);
    }
}

static status_t fill_sources(Trainyard__V1__MixtureData *m, struct err *e) {
    for (size_t i = 0; i < m->n_sources; i++)
        if (m->sources[i]->value)
            TRY(defaults_fill_constants(&m->sources[i]->value->base, e));
    return ST_OK;
}

/* ---- constants ---- */

static void place_message(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    ProtobufCMessage *made = message_new(f->descriptor);
    *(ProtobufCMessage **)field_value(msg, f) = made;
    if (field_is_oneof(f))
        oneof_set_case(msg, f);
}

static void fill_message(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const char *text) {
    if (!field_is_set(msg, f))
        place_message(msg, f);
    ProtobufCMessage *part = *(ProtobufCMessage **)field_value(msg, f);
    if (strcmp(text, "{}") != 0 && !spec_member(part))
        place_message(part, protobuf_c_message_descriptor_get_field_by_name(part->descriptor, text));
}

static status_t fill_scalar(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const char *text, struct err *e) {
    if (field_is_set(msg, f))
        return ST_OK;
    TRY(scalar_parse(f, text, strlen(text), field_value(msg, f), e));
    oneof_set_case(msg, f);
    return ST_OK;
}

status_t defaults_fill_constants(ProtobufCMessage *msg, struct err *e) {
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &msg->descriptor->fields[i];
        const Trainyard__V1__SpecField *rule = spec_field(msg->descriptor, i);
        const char *text = spec_replaced(msg, rule) ? "" : rule->default_;
        const bool message = f->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_repeated(f);
        if (*text && message)
            fill_message(msg, f, text);
        else if (*text)
            TRY(fill_scalar(msg, f, text, e));
        if (message && field_is_set(msg, f))
            TRY(defaults_fill_constants(*(ProtobufCMessage **)field_value(msg, f), e));
    }
    return ST_OK;
}

/* ---- what follows from other fields ---- */

/* Sets a number that is absent. */
#define COMPUTE(msg, TYPE, field, FIELD, value)                                                                        \
    do {                                                                                                               \
        if (!(msg)->_##field##_case) {                                                                                 \
            (msg)->field = (value);                                                                                    \
            (msg)->_##field##_case = TRAINYARD__V1__##TYPE##___##FIELD##_##FIELD;                                      \
        }                                                                                                              \
    } while (0)

/* As Llama's authors do: two thirds of 4 x width, since SwiGLU has three matrices where others have two. */
static int32_t llama_hidden(int32_t width) {
    int64_t third = ((int64_t)width * 8 + 2) / 3;
    return (int32_t)((third + HIDDEN_MULTIPLE - 1) / HIDDEN_MULTIPLE * HIDDEN_MULTIPLE);
}

static void compute_model(const Trainyard__V1__ModelSpec *model) {
    if (model->family_case == TRAINYARD__V1__MODEL_SPEC__FAMILY_LLAMA) {
        Trainyard__V1__LlamaModel *m = model->llama;
        if (m->heads > 0)
            COMPUTE(m, LLAMA_MODEL, kv_heads, KV_HEADS, m->heads);
        if (m->width > 0 && m->width < INT32_MAX / 4)
            COMPUTE(m, LLAMA_MODEL, hidden, HIDDEN, llama_hidden(m->width));
    } else if (model->family_case == TRAINYARD__V1__MODEL_SPEC__FAMILY_VIT) {
        if (model->vit->width > 0 && model->vit->width < INT32_MAX / 4)
            COMPUTE(model->vit, VIT_MODEL, hidden, HIDDEN, 4 * model->vit->width);
    }
}

static void compute_text(Trainyard__V1__TextData *t) {
    if (t->_format_case == 0 && t->n_files > 0) {
        t->format = alloc_copy_text(spec_text_format(t->files[0]));
        t->_format_case = TRAINYARD__V1__TEXT_DATA___FORMAT_FORMAT;
    }
    if (t->_document_case == 0 && t->_format_case && strcmp(t->format, "text") != 0) {
        t->document = alloc_copy_text(strcmp(t->format, "webdataset") == 0 ? "txt" : "text");
        t->_document_case = TRAINYARD__V1__TEXT_DATA___DOCUMENT_DOCUMENT;
    }
}

/* Samples that a default micro-batch has at least. With fewer rows, a matrix product waits for its weights. */
static int32_t min_micro_batch(const Trainyard__V1__ModelSpec *model) {
    const ProtobufCMessage *member = model ? spec_member_message(&model->base) : NULL;
    if (!member)
        return 1;
    const int32_t *context = spec_value(member, "context");
    if (context && *context > 0)
        return (LIMIT_MICRO_BATCH_TOKENS - 1) / *context + 1;
    const int32_t min = spec_member_rule(&model->base)->min_micro_batch;
    return min > 0 ? min : 1;
}

/* The largest power of two, at most LIMIT_DEFAULT_LANES, that cuts n samples into equal parts of at least `min`, or 1;
 * n > 0. */
static int32_t largest_cut(int32_t n, int32_t min) {
    int32_t power = 1;
    while (power < LIMIT_DEFAULT_LANES && n % (power * 2) == 0 && n / (power * 2) >= min)
        power *= 2;
    return power;
}

/* As many as the model's minimum allows, and one for each lane that the spec asks for. */
static int32_t micro_batches(const Trainyard__V1__ModelSpec *model, const Trainyard__V1__TrainSpec *t) {
    const int32_t cut = largest_cut(t->global_batch, min_micro_batch(model));
    const bool lanes = t->_lanes_case && t->lanes > cut && t->global_batch % t->lanes == 0;
    return lanes ? t->lanes : cut;
}

/* With `auto` the plan decides: lanes follow from the micro_batch that it chooses. */
static void compute_batches(const Trainyard__V1__ModelSpec *model, Trainyard__V1__TrainSpec *t) {
    if (t->global_batch <= 0)
        return;
    if (!t->micro_batch_auto)
        COMPUTE(t, TRAIN_SPEC, micro_batch, MICRO_BATCH, t->global_batch / micro_batches(model, t));
    if (t->_micro_batch_case && t->micro_batch > 0 && t->global_batch % t->micro_batch == 0)
        COMPUTE(t, TRAIN_SPEC, lanes, LANES, largest_cut(t->global_batch / t->micro_batch, 1));
}

/* SGD's recipes, such as ResNet's, do not clip. */
static double default_clip_norm(const Trainyard__V1__OptimizerSpec *o) {
    return o->kind_case == TRAINYARD__V1__OPTIMIZER_SPEC__KIND_SGD ? 0 : 1;
}

/* A tenth of the steps, or what warm-up leaves. */
static int64_t tenth_after(int64_t warmup, int64_t steps) {
    if (steps <= 0 || warmup < 0 || warmup > steps)
        return 0;
    int64_t tenth = steps / 10 + (steps % 10 != 0);
    return tenth < steps - warmup ? tenth : steps - warmup;
}

static status_t compute_loss_scale(Trainyard__V1__TrainSpec *t, struct err *e) {
    if (t->loss_scale || strcmp(t->precision, "fp16") != 0)
        return ST_OK;
    ProtobufCMessage *made = message_new(&trainyard__v1__loss_scale_spec__descriptor);
    t->loss_scale = (Trainyard__V1__LossScaleSpec *)made;
    return defaults_fill_constants(made, e);
}

/* What follows from the names of files. */
static void compute_data(const Trainyard__V1__DataSpec *data) {
    if (data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT)
        compute_text(data->text);
    if (data->source_case != TRAINYARD__V1__DATA_SPEC__SOURCE_MIXTURE)
        return;
    for (size_t i = 0; i < data->mixture->n_sources; i++) {
        const Trainyard__V1__MixtureSource *source = data->mixture->sources[i]->value;
        if (source && source->text)
            compute_text(source->text);
    }
}

status_t defaults_fill(Trainyard__V1__JobSpec *spec, struct err *e) {
    Trainyard__V1__MixtureData *mixture = spec->data &&
                                                  spec->data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_MIXTURE
                                              ? spec->data->mixture
                                              : NULL;
    if (mixture)
        fill_mixture(mixture);
    TRY(defaults_fill_constants(&spec->base, e));
    if (mixture)
        TRY(fill_sources(mixture, e));
    Trainyard__V1__TrainSpec *t = spec->train;
    if (!t) /* a program */
        return ST_OK;
    Trainyard__V1__ScheduleSpec *s = t->learning_rate_schedule;
    Trainyard__V1__ParallelSpec *l = spec->parallel;
    if (spec->model)
        compute_model(spec->model);
    if (spec->data)
        compute_data(spec->data);
    compute_batches(spec->model, t);
    COMPUTE(t, TRAIN_SPEC, clip_norm, CLIP_NORM, default_clip_norm(t->optimizer));
    if (s->kind_case == TRAINYARD__V1__SCHEDULE_SPEC__KIND_WSD)
        COMPUTE(s->wsd, WSD_SCHEDULE, decay_steps, DECAY_STEPS, tenth_after(s->wsd->warmup_steps, t->steps));
    COMPUTE(l, PARALLEL_SPEC, virtual_stages, VIRTUAL_STAGES, strcmp(l->pipeline_schedule, "interleaved") == 0 ? 2 : 1);
    return compute_loss_scale(t, e);
}
