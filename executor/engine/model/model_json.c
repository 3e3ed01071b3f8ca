#include "base/cleanup.h"
#include "executor/engine/model/model.h"

#include <jansson.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Every number of a shape by its name, so that a record of a model holds all that building it again takes. */
enum field_type { FIELD_INT, FIELD_REAL, FIELD_BOOL, FIELD_LIST };

struct field {
    enum model_family family;
    enum field_type type;
    const char *name;
    size_t at, count_at; /* in struct model_config; FIELD_LIST: of the ints, and of their number */
    bool optional;       /* 0 is not written: records without it are of models without it */
};

#define FIELD(FAMILY, type, shape, member)                                                                             \
    { FAMILY, type, #member, offsetof(struct model_config, shape.member), 0, false }
#define OPTIONAL(FAMILY, type, shape, member)                                                                          \
    { FAMILY, type, #member, offsetof(struct model_config, shape.member), 0, true }

static const struct field FIELDS[] = {
    FIELD(MODEL_GPT, FIELD_INT, gpt, layers),
    FIELD(MODEL_GPT, FIELD_INT, gpt, heads),
    FIELD(MODEL_GPT, FIELD_INT, gpt, width),
    FIELD(MODEL_GPT, FIELD_INT, gpt, context),
    FIELD(MODEL_GPT, FIELD_INT, gpt, vocabulary),
    FIELD(MODEL_GPT, FIELD_REAL, gpt, dropout),
    FIELD(MODEL_LLAMA, FIELD_INT, llama, layers),
    FIELD(MODEL_LLAMA, FIELD_INT, llama, heads),
    FIELD(MODEL_LLAMA, FIELD_INT, llama, width),
    FIELD(MODEL_LLAMA, FIELD_INT, llama, context),
    FIELD(MODEL_LLAMA, FIELD_INT, llama, kv_heads),
    FIELD(MODEL_LLAMA, FIELD_INT, llama, hidden),
    FIELD(MODEL_LLAMA, FIELD_INT, llama, vocabulary),
    FIELD(MODEL_LLAMA, FIELD_REAL, llama, rope_theta),
    OPTIONAL(MODEL_LLAMA, FIELD_REAL, llama, rope_scaling.factor),
    OPTIONAL(MODEL_LLAMA, FIELD_REAL, llama, rope_scaling.low_freq_factor),
    OPTIONAL(MODEL_LLAMA, FIELD_REAL, llama, rope_scaling.high_freq_factor),
    OPTIONAL(MODEL_LLAMA, FIELD_INT, llama, rope_scaling.original_max_position_embeddings),
    FIELD(MODEL_LLAMA, FIELD_REAL, llama, norm_eps),
    FIELD(MODEL_LLAMA, FIELD_BOOL, llama, tied_embeddings),
    FIELD(MODEL_RESNET, FIELD_INT, resnet, layers),
    FIELD(MODEL_RESNET, FIELD_INT, resnet, classes),
    FIELD(MODEL_RESNET, FIELD_INT, resnet, stem),
    FIELD(MODEL_RESNET, FIELD_INT, resnet, width),
    FIELD(MODEL_VIT, FIELD_INT, vit, layers),
    FIELD(MODEL_VIT, FIELD_INT, vit, heads),
    FIELD(MODEL_VIT, FIELD_INT, vit, width),
    FIELD(MODEL_VIT, FIELD_INT, vit, patch),
    FIELD(MODEL_VIT, FIELD_INT, vit, hidden),
    FIELD(MODEL_VIT, FIELD_INT, vit, classes),
    FIELD(MODEL_VIT, FIELD_REAL, vit, dropout),
    { MODEL_MLP, FIELD_LIST, "hidden", offsetof(struct model_config, mlp.hidden),
      offsetof(struct model_config, mlp.n_hidden), false },
    FIELD(MODEL_MLP, FIELD_INT, mlp, classes),
    FIELD(MODEL_MLP, FIELD_REAL, mlp, dropout),
    FIELD(MODEL_UNROLLED, FIELD_INT, unrolled, iterations),
    FIELD(MODEL_UNROLLED, FIELD_INT, unrolled, channels),
    FIELD(MODEL_UNROLLED, FIELD_INT, unrolled, layers),
    FIELD(MODEL_UNROLLED, FIELD_BOOL, unrolled, shared_weights),
};
enum { N_FIELDS = sizeof FIELDS / sizeof FIELDS[0] };

static json_t *field_to_json(const struct field *f, const void *p, const void *count) {
    switch (f->type) {
    case FIELD_INT: return json_integer(*(const int *)p);
    case FIELD_REAL: return json_real(*(const double *)p);
    case FIELD_BOOL: return json_boolean(*(const bool *)p);
    default: break;
    }
    json_t *list = json_array();
    bool whole = list;
    for (int i = 0; i < *(const int *)count; i++)
        whole &= json_array_append_new(list, json_integer(((const int *)p)[i])) == 0;
    if (whole)
        return list;
    json_decref(list);
    return NULL;
}

char *model_to_json(const struct model_config *config) {
    json_t *shape = json_object();
    bool whole = shape;
    for (int i = 0; i < N_FIELDS; i++) {
        if (FIELDS[i].family != config->family)
            continue;
        json_t *value = field_to_json(&FIELDS[i], (const char *)config + FIELDS[i].at,
                                      (const char *)config + FIELDS[i].count_at);
        if (FIELDS[i].optional && json_number_value(value) == 0)
            json_decref(value);
        else
            whole &= json_object_set_new(shape, FIELDS[i].name, value) == 0; /* refused where the value is NULL */
    }
    json_t *model = json_pack("{s:o}", model_family_name(config->family), shape);
    char *text = model && whole ? json_dumps(model, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(model);
    return text;
}

static bool field_from_json(const struct field *f, const json_t *value, void *p, void *count) {
    if (f->optional && !value)
        return true;
    switch (f->type) {
    case FIELD_INT: *(int *)p = (int)json_integer_value(value); return json_is_integer(value);
    case FIELD_REAL: *(double *)p = json_number_value(value); return json_is_number(value);
    case FIELD_BOOL: *(bool *)p = json_is_true(value); return json_is_boolean(value);
    default: break;
    }
    if (!json_is_array(value) || json_array_size(value) > MLP_LAYERS_MOST)
        return false;
    *(int *)count = (int)json_array_size(value);
    for (int i = 0; i < *(int *)count; i++)
        ((int *)p)[i] = (int)json_integer_value(json_array_get(value, (size_t)i));
    return true;
}

static bool read_family(const json_t *model, struct model_config *ret) {
    const json_t *shape = NULL;
    for (int f = 0; f < MODEL_FAMILIES && !shape; f++) {
        ret->family = (enum model_family)f;
        shape = json_object_get(model, model_family_name(ret->family));
    }
    if (!shape)
        return false;
    for (int i = 0; i < N_FIELDS; i++)
        if (FIELDS[i].family == ret->family &&
            !field_from_json(&FIELDS[i], json_object_get(shape, FIELDS[i].name), (char *)ret + FIELDS[i].at,
                             (char *)ret + FIELDS[i].count_at))
            return false;
    return true;
}

static const char UNREADABLE[] = "the record of the model is not one that this build can read";

status_t model_from_json(const char *text, struct model_config *ret, struct err *e) {
    json_t *model = json_loads(text, 0, NULL);
    *ret = (struct model_config){ 0 };
    bool good = read_family(model, ret);
    json_decref(model);
    return good ? ST_OK : err_set(e, ST_DATA_LOSS, "%s", UNREADABLE);
}

status_t model_from_layout(const char *layout_json, struct model_config *ret, struct err *e) {
    json_t *layout = json_loads(layout_json, 0, NULL);
    const json_t *model = json_object_get(layout, "model");
    *ret = (struct model_config){ 0 };
    const char *why = !model ? "it has none" : !read_family(model, ret) ? UNREADABLE : NULL;
    json_decref(layout);
    return why ? err_set(e, ST_DATA_LOSS, "the checkpoint's manifest does not describe its model: %s", why) : ST_OK;
}

static char *field_text(const struct field *f, const struct model_config *config) {
    json_t *value = field_to_json(f, (const char *)config + f->at, (const char *)config + f->count_at);
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(value);
    return text;
}

status_t model_takes(const struct model_config *model, const struct model_config *theirs, struct err *e) {
    const char *family = model_family_name(model->family);
    if (model->family != theirs->family)
        return err_set(e, ST_INVALID_ARGUMENT, "model: %s, but the weights are of a %s", family,
                       model_family_name(theirs->family));
    for (int i = 0; i < N_FIELDS; i++) {
        if (FIELDS[i].family != model->family || strcmp(FIELDS[i].name, "dropout") == 0)
            continue;
        CLEANUP(freep) char *want = field_text(&FIELDS[i], model), *have = field_text(&FIELDS[i], theirs);
        if (!want || !have)
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to compare two models");
        if (strcmp(want, have) != 0)
            return err_set(e, ST_INVALID_ARGUMENT, "model.%s.%s: %s, but the weights are of a model with %s", family,
                           FIELDS[i].name, want, have);
    }
    return ST_OK;
}
