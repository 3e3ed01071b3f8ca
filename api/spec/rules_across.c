#include "api/spec/rules_parts.h"
#include "base/limits.h"

#include <string.h>

enum { BYTE_VOCABULARY = 256, MOST_VIRTUAL_STAGES = 64, LEAST_NCCL_BUFFER = 64 << 10, MOST_NCCL_BUFFER = 1 << 30 };

/* ---- a model and the data that it can read ---- */

enum reads { READS_TOKENS, READS_IMAGES, READS_MEASUREMENTS, READS_NOTHING };

static enum reads model_reads(const Trainyard__V1__ModelSpec *model) {
    switch (model ? model->family_case : TRAINYARD__V1__MODEL_SPEC__FAMILY__NOT_SET) {
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_GPT:
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_LLAMA: return READS_TOKENS;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_RESNET:
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_VIT:
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_MLP: return READS_IMAGES;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_UNROLLED: return READS_MEASUREMENTS;
    default: return READS_NOTHING;
    }
}

static enum reads data_gives(const Trainyard__V1__DataSpec *data) {
    switch (data ? data->source_case : TRAINYARD__V1__DATA_SPEC__SOURCE__NOT_SET) {
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT:
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TOKENS: return READS_TOKENS;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IMAGES:
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IDX: return READS_IMAGES;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_RECONSTRUCTION: return READS_MEASUREMENTS;
    default: return READS_NOTHING;
    }
}

static const char *member(const ProtobufCMessage *msg, uint32_t id) {
    return protobuf_c_message_descriptor_get_field(msg->descriptor, id)->name;
}

static bool check_pair(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    static const char *const sources[] = {
        [READS_TOKENS] = "text or tokens", [READS_IMAGES] = "images or idx", [READS_MEASUREMENTS] = "reconstruction"
    };
    enum reads reads = model_reads(spec->model), gives = data_gives(spec->data);
    if (reads == READS_NOTHING || gives == READS_NOTHING)
        return false;
    if (reads == gives)
        return true;
    problem_add(p, "data: %s is nothing that model.%s can read; give %s",
                member(&spec->data->base, spec->data->source_case),
                member(&spec->model->base, spec->model->family_case), sources[reads]);
    return false;
}

/* 0: only the data's files tell. */
static int32_t least_vocabulary(const char *tokenizer) { return strcmp(tokenizer, "byte") == 0 ? BYTE_VOCABULARY : 0; }

static void check_vocabulary(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const Trainyard__V1__ModelSpec *m = spec->model;
    bool gpt = m->family_case == TRAINYARD__V1__MODEL_SPEC__FAMILY_GPT;
    bool given = gpt ? m->gpt->_vocabulary_case != 0 : m->llama->_vocabulary_case != 0;
    int32_t vocabulary = gpt ? m->gpt->vocabulary : m->llama->vocabulary;
    const char *family = gpt ? "gpt" : "llama";
    bool text = spec->data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT;
    const char *tokenizer = text ? spec->data->text->tokenizer : spec->data->tokens->tokenizer;
    int32_t least = least_vocabulary(tokenizer);
    if (!given && !*tokenizer)
        problem_add(p, "model.%s.vocabulary: must be given, since data.tokens names no tokenizer", family);
    if (given && vocabulary >= 2 && vocabulary < least)
        problem_add(p, "model.%s.vocabulary: %d is less than the %s tokenizer's %d", family, vocabulary, tokenizer,
                    least);
}

static void check_image_size(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    if (spec->model->family_case != TRAINYARD__V1__MODEL_SPEC__FAMILY_VIT ||
        spec->data->source_case != TRAINYARD__V1__DATA_SPEC__SOURCE_IMAGES || !spec->data->images->_size_case)
        return;
    int32_t patch = spec->model->vit->patch, size = spec->data->images->size;
    if (patch > 0 && size > 0 && size % patch != 0)
        problem_add(p, "model.vit.patch: %d does not divide data.images.size %d", patch, size);
}

/* ---- what must fit into a rank's memory ---- */

static void check_memory(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    bool limited = check_int(p, "resources.memory_bytes", spec->resources->memory_bytes, 0, INT64_MAX) &&
                   spec->resources->memory_bytes > 0;
    if (limited || spec->resources->memory_bytes < 0)
        return;
    if (spec->train->micro_batch_auto && !spec->train->_micro_batch_case)
        problem_add(p, "train.micro_batch: auto needs resources.memory_bytes, the bytes that one rank may take");
    else if (strcmp(spec->train->recompute, "auto") == 0)
        problem_add(p, "train.recompute: auto needs resources.memory_bytes, the bytes that one rank may take");
}

/* ---- the layout ---- */

static void check_zero(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const Trainyard__V1__ParallelSpec *l = spec->parallel;
    uint32_t kind = spec->train->optimizer->kind_case;
    bool whole = kind == TRAINYARD__V1__OPTIMIZER_SPEC__KIND_MUON ||
                 kind == TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAFACTOR;
    if (l->zero >= 2 && l->pipeline > 1)
        problem_add(p,
                    "parallel.zero: %d shards gradients, which the stages of pipeline %d accumulate whole over a step; "
                    "give 0 or 1, or pipeline 1",
                    l->zero, l->pipeline);
    if (l->zero == 3 && whole)
        problem_add(p, "parallel.zero: 3 cuts tensors, and %s steps whole ones; give at most 2",
                    member(&spec->train->optimizer->base, kind));
}

static void check_pipeline(const Trainyard__V1__ParallelSpec *l, struct spec_problems *p) {
    static const char *const schedules[] = { "gpipe", "1f1b", "interleaved", "zero_bubble", NULL };
    bool pipeline = check_int(p, "parallel.pipeline", l->pipeline, 1, LIMIT_WORLD_SIZE);
    bool schedule = check_choice(p, "parallel.pipeline_schedule", l->pipeline_schedule, schedules);
    if (!check_int(p, "parallel.virtual_stages", l->virtual_stages, 1, MOST_VIRTUAL_STAGES) || !pipeline || !schedule)
        return;
    bool interleaved = strcmp(l->pipeline_schedule, "interleaved") == 0;
    if (l->virtual_stages > 1 && !interleaved)
        problem_add(p, "parallel.virtual_stages: %d needs pipeline_schedule interleaved", l->virtual_stages);
    if (interleaved && l->pipeline == 1)
        problem_add(p, "parallel.pipeline_schedule: interleaved needs a pipeline above 1");
    else if (interleaved && l->virtual_stages == 1)
        problem_add(p, "parallel.virtual_stages: interleaved needs at least 2");
}

static void check_nccl(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    static const char *const algorithms[] = {
        "Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", NULL
    };
    static const char *const protocols[] = { "LL", "LL128", "Simple", NULL };
    const Trainyard__V1__NcclSpec *n = spec->parallel->nccl;
    if (!n)
        return;
    if (strcmp(spec->resources->accelerator, "cuda") != 0)
        problem_add(p, "parallel.nccl: needs resources.accelerator cuda");
    if (n->buffer_bytes != 0)
        check_int(p, "parallel.nccl.buffer_bytes", n->buffer_bytes, LEAST_NCCL_BUFFER, MOST_NCCL_BUFFER);
    if (*n->algorithm)
        check_choice(p, "parallel.nccl.algorithm", n->algorithm, algorithms);
    if (*n->protocol)
        check_choice(p, "parallel.nccl.protocol", n->protocol, protocols);
}

void rules_parallel(const Trainyard__V1__JobSpec *spec, int32_t lanes, struct spec_problems *p) {
    const Trainyard__V1__ParallelSpec *l = spec->parallel;
    bool data = check_int(p, "parallel.data", l->data, 1, LIMIT_WORLD_SIZE);
    if (data && lanes > 0 && lanes % l->data != 0)
        problem_add(p, "parallel.data: %d does not divide train.lanes %d", l->data, lanes);
    else if (data && lanes == 0 && (l->data & (l->data - 1)) != 0)
        problem_add(p, "parallel.data: %d is not a power of two", l->data);
    check_pipeline(l, p);
    if (data && l->pipeline >= 1 && l->pipeline <= LIMIT_WORLD_SIZE && l->data * l->pipeline > LIMIT_WORLD_SIZE)
        problem_add(p, "parallel: data %d x pipeline %d are more than %d ranks", l->data, l->pipeline,
                    LIMIT_WORLD_SIZE);
    if (check_int(p, "parallel.zero", l->zero, 0, 3))
        check_zero(spec, p);
    check_nccl(spec, p);
}

void rules_across(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    if (data_gives(spec->data) != READS_NOTHING && spec->checkpoint->keep_best > 0 &&
        !rules_has_validation(spec->data)) {
        bool text = spec->data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT;
        problem_add(p, "checkpoint.keep_best: needs validation data, and %s",
                    text ? "data.text.validation_fraction is 0" : "data names none");
    }
    check_memory(spec, p);
    if (!check_pair(spec, p))
        return;
    if (model_reads(spec->model) == READS_TOKENS)
        check_vocabulary(spec, p);
    else
        check_image_size(spec, p);
}
