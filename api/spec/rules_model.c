#include "api/spec/fields.h"
#include "api/spec/rules.h"

#include <stdio.h>
#include <string.h>

enum { BYTE_VOCABULARY = 256 };

static void check_llama(const Trainyard__V1__LlamaModel *m, struct spec_problems *p) {
    if (rules_field_good(&m->base, "heads") && rules_field_good(&m->base, "width") && m->width / m->heads % 2 != 0)
        problem_add(p, "model.llama.heads: heads of %d numbers are odd, and rotary positions turn pairs",
                    m->width / m->heads);
    const Trainyard__V1__LlamaRopeScaling *s = m->rope_scaling;
    if (s && rules_field_good(&s->base, "low_freq_factor") && rules_field_good(&s->base, "high_freq_factor") &&
        s->high_freq_factor <= s->low_freq_factor)
        problem_add(p, "model.llama.rope_scaling.high_freq_factor: %g is not above low_freq_factor %g",
                    s->high_freq_factor, s->low_freq_factor);
}

/* "images or idx" */
static void name_sources(const ProtobufCMessageDescriptor *data, const char *wanted, char ret[64]) {
    size_t used = 0;
    for (unsigned i = 0; i < data->n_fields; i++)
        if (strcmp(spec_field(data, i)->samples, wanted) == 0)
            used += (size_t)snprintf(ret + used, 64 - used, "%s%s", used ? " or " : "", data->fields[i].name);
}

static bool check_pair(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const ProtobufCMessage *model = &spec->model->base, *data = &spec->data->base;
    char sources[64] = "";
    if (strcmp(spec_member_rule(model)->samples, spec_member_rule(data)->samples) == 0)
        return true;
    name_sources(data->descriptor, spec_member_rule(model)->samples, sources);
    problem_add(p, "data: model.%s cannot read %s; give %s", spec_member(model)->name, spec_member(data)->name,
                sources);
    return false;
}

/* Of a model that predicts tokens. Only the data's files give the vocabulary of most tokenizers. */
static void check_vocabulary(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const ProtobufCMessage *model = spec_member_message(&spec->model->base);
    const char *family = spec_member(&spec->model->base)->name;
    const int32_t *vocabulary = spec_value(model, "vocabulary");
    char *const *tokenizer = spec_value(spec_member_message(&spec->data->base), "tokenizer");
    if (!protobuf_c_message_descriptor_get_field_by_name(model->descriptor, "vocabulary") || !tokenizer)
        return;
    if (!vocabulary && !**tokenizer)
        problem_add(p, "model.%s.vocabulary: must be given, since data.%s names no tokenizer", family,
                    spec_member(&spec->data->base)->name);
    if (vocabulary && rules_field_good(model, "vocabulary") && strcmp(*tokenizer, "byte") == 0 &&
        *vocabulary < BYTE_VOCABULARY)
        problem_add(p, "model.%s.vocabulary: %d is less than the byte tokenizer's %d", family, *vocabulary,
                    BYTE_VOCABULARY);
}

/* A model of patches, and images whose size the spec gives. */
static void check_patch(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const int32_t *patch = spec_value(spec_member_message(&spec->model->base), "patch");
    const int32_t *size = spec_value(spec_member_message(&spec->data->base), "size");
    if (patch && size && *patch > 0 && *size > 0 && *size % *patch != 0)
        problem_add(p, "model.%s.patch: %d does not divide data.%s.size %d", spec_member(&spec->model->base)->name,
                    *patch, spec_member(&spec->data->base)->name, *size);
}

void rules_model(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    if (!spec_member(spec->model ? &spec->model->base : NULL))
        return;
    if (spec->model->family_case == TRAINYARD__V1__MODEL_SPEC__FAMILY_LLAMA)
        check_llama(spec->model->llama, p);
    if (!spec_member(spec->data ? &spec->data->base : NULL) || !check_pair(spec, p))
        return;
    check_vocabulary(spec, p);
    check_patch(spec, p);
}
