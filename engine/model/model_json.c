/* A record of a model is {"FAMILY":{"field":value,...}}, with every field of the kind's table in its order, so that the
 * model can be built again from the record alone. Choices are recorded as their number. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "engine/model/model.h"

#include <jansson.h>

#include <stdlib.h>
#include <string.h>

static json_t *field_to_json(const struct member *f, const struct model_config *config) {
    const void *p = (const char *)config->shape + f->at, *count = (const char *)config->shape + f->count_at;
    switch (f->type) {
    case MEMBER_TYPE_CHOICE:
    case MEMBER_TYPE_INT: return json_integer(*(const int *)p);
    case MEMBER_TYPE_REAL: return json_real(*(const double *)p);
    case MEMBER_TYPE_BOOL: return json_boolean(*(const bool *)p);
    default: break;
    }
    json_t *list = json_array();
    for (int i = 0; i < *(const int *)count; i++)
        json_array_append_new(list, json_integer(((const int *)p)[i]));
    return list;
}

char *model_to_json(const struct model_config *config) {
    json_t *shape = json_object();
    for (int i = 0; i < config->kind->n_members; i++) {
        const struct member *f = &config->kind->members[i];
        json_t *value = field_to_json(f, config);
        if (f->optional && json_number_value(value) == 0)
            json_decref(value);
        else
            json_object_set_new(shape, f->name, value);
    }
    json_t *model = json_pack("{s:o}", config->kind->name, shape);
    char *text = model ? json_dumps(model, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(model);
    if (!text)
        alloc_refused(sizeof config->shape);
    return text;
}

static bool field_from_json(const struct member *f, const json_t *value, struct model_config *ret) {
    void *p = (char *)ret->shape + f->at;
    if (f->optional && !value)
        return true;
    switch (f->type) {
    case MEMBER_TYPE_CHOICE:
    case MEMBER_TYPE_INT: *(int *)p = (int)json_integer_value(value); return json_is_integer(value);
    case MEMBER_TYPE_REAL: *(double *)p = json_number_value(value); return json_is_number(value);
    case MEMBER_TYPE_BOOL: *(bool *)p = json_is_true(value); return json_is_boolean(value);
    default: break;
    }
    if (!json_is_array(value) || json_array_size(value) > (size_t)f->max)
        return false;
    const int n = (int)json_array_size(value);
    *(int *)(void *)((char *)ret->shape + f->count_at) = n;
    for (int i = 0; i < n; i++)
        ((int *)p)[i] = (int)json_integer_value(json_array_get(value, (size_t)i));
    return true;
}

static bool read_model(json_t *model, struct model_config *ret) {
    const char *name = json_object_iter_key(json_object_iter(model));
    ret->kind = name ? model_kind_find(name) : NULL;
    for (int i = 0; ret->kind && i < ret->kind->n_members; i++) {
        const struct member *f = &ret->kind->members[i];
        if (!field_from_json(f, json_object_get(json_object_get(model, name), f->name), ret))
            return false;
    }
    return ret->kind != NULL;
}

static const char UNREADABLE[] = "the record of the model is not one that this build can read";

status_t model_from_json(const char *text, struct model_config *ret, struct err *e) {
    json_t *model = json_loads(text, 0, NULL);
    *ret = (struct model_config){ 0 };
    bool good = read_model(model, ret);
    json_decref(model);
    return good ? ST_OK : err_set(e, ST_DATA_LOSS, "%s", UNREADABLE);
}

status_t model_from_layout(const char *layout_json, struct model_config *ret, struct err *e) {
    json_t *layout = json_loads(layout_json, 0, NULL);
    json_t *model = json_object_get(layout, "model");
    *ret = (struct model_config){ 0 };
    const char *why = !model ? "it has none" : !read_model(model, ret) ? UNREADABLE : NULL;
    json_decref(layout);
    return why ? err_set(e, ST_DATA_LOSS, "the checkpoint's manifest does not describe its model: %s", why) : ST_OK;
}

static char *field_text(const struct member *f, const struct model_config *config) {
    json_t *value = field_to_json(f, config);
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(value);
    if (!text)
        alloc_refused(sizeof config->shape);
    return text;
}

status_t model_takes(const struct model_config *model, const struct model_config *theirs, struct err *e) {
    const struct model_kind *kind = model->kind;
    if (kind != theirs->kind)
        return err_set(e, ST_INVALID_ARGUMENT, "model: %s, but the weights are of a %s", kind->name,
                       theirs->kind->name);
    for (int i = 0; i < kind->n_members; i++) {
        const struct member *f = &kind->members[i];
        if (strcmp(f->name, "dropout") == 0)
            continue;
        CLEANUP(freep) char *want = field_text(f, model), *have = field_text(f, theirs);
        if (strcmp(want, have) != 0)
            return err_set(e, ST_INVALID_ARGUMENT, "model.%s.%s: %s, but the weights are of a model with %s",
                           kind->name, f->name, want, have);
    }
    return ST_OK;
}
