/* Fills the structs of the engine that have a table of members (base/member.h): a model's shape, and the settings of an
 * optimizer, a data kind and a learning rate. Each member comes from the field of the same name in the spec's message.
 * A field that the message does not set leaves 0: the data decides it. */
#include "api/codec/message.h"
#include "api/spec/data_sources.h"
#include "api/spec/data_uri.h"
#include "base/alloc.h"
#include "engine/data/source_kind.h"
#include "executor/worker/config_parts.h"

#include <stdio.h>
#include <string.h>

status_t config_choice(const char *field, const char *word, const char *const *choices, int *ret, struct err *e) {
    for (int i = 0; choices[i]; i++)
        if (word && strcmp(word, choices[i]) == 0) {
            *ret = i;
            return ST_OK;
        }
    return err_set(e, ST_INVALID_ARGUMENT, "%s: '%s' is not a choice", field, word ? word : "");
}

/* The field `name` ("rope_scaling.factor") of msg: *msg becomes the message that has it. NULL if a message on the
 * way is absent or has no such field. */
static const ProtobufCFieldDescriptor *find(const ProtobufCMessage **msg, const char *name) {
    char part[64];
    for (;;) {
        const size_t n = strcspn(name, ".");
        if (n >= sizeof part)
            return NULL;
        memcpy(part, name, n);
        part[n] = '\0';
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name((*msg)->descriptor, part);
        if (!f || !name[n])
            return f;
        if (!field_is_set(*msg, f))
            return NULL;
        *msg = *(ProtobufCMessage *const *)field_value(*msg, f);
        name += n + 1;
    }
}

/* How paths become members: where they are kept, and below which roots they must lie. */
struct filling {
    struct config_paths *paths;
    const struct roots *roots;
};

static status_t fill_list(const struct member *to, const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                          const char *field, char *ret, struct err *e) {
    size_t n;
    const int32_t *elements = field_elements(msg, f, &n);
    if (n > (size_t)to->max)
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %zu elements are more than %d", field, n, to->max);
    *(int *)(void *)(ret + to->count_at) = (int)n;
    for (size_t i = 0; i < n; i++)
        ((int *)(void *)(ret + to->at))[i] = elements[i];
    return ST_OK;
}

static status_t fill_reals(const struct member *to, const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                           const char *field, char *ret, struct err *e) {
    size_t n;
    const double *elements = field_elements(msg, f, &n);
    if (n > (size_t)to->max)
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %zu elements are more than %d", field, n, to->max);
    *(int *)(void *)(ret + to->count_at) = (int)n;
    for (size_t i = 0; i < n; i++)
        ((double *)(void *)(ret + to->at))[i] = elements[i];
    return ST_OK;
}

static status_t fill_files(const struct member *to, const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                           const char *field, const struct filling *with, char *ret, struct err *e) {
    size_t n;
    char *const *uris = field_elements(msg, f, &n);
    return config_path_list(with->paths, field, uris, n, with->roots, (const char *const **)(void *)(ret + to->at),
                            (int *)(void *)(ret + to->count_at), e);
}

static status_t fill_path(const struct member *to, const char *text, const char *field, const struct filling *with,
                          const char **ret, struct err *e) {
    *ret = text;
    if (strncmp(text, "file:", 5) != 0 && !data_uri_is_remote(text))
        return ST_OK;
    return config_path(with->paths, field, text, to->path, with->roots, ret, e);
}

/* path: the message's own, for errors. */
static status_t fill_member(const struct member *to, const ProtobufCMessage *msg, const char *path,
                            const struct filling *with, char *ret, struct err *e) {
    char field[128];
    const ProtobufCFieldDescriptor *f = find(&msg, to->name);
    snprintf(field, sizeof field, "%s.%s", path, to->name);
    if (f && to->type == MEMBER_TYPE_LIST)
        return fill_list(to, msg, f, field, ret, e);
    if (f && to->type == MEMBER_TYPE_REALS)
        return fill_reals(to, msg, f, field, ret, e);
    if (f && to->type == MEMBER_TYPE_FILES)
        return fill_files(to, msg, f, field, with, ret, e);
    if (!f || (field_has_presence(f) && !field_is_set(msg, f)))
        return ST_OK;
    const void *from = field_value(msg, f);
    void *at = ret + to->at;
    switch (to->type) {
    case MEMBER_TYPE_INT: *(int *)at = *(const int32_t *)from; break;
    case MEMBER_TYPE_INT64: *(int64_t *)at = *(const int64_t *)from; break;
    case MEMBER_TYPE_REAL: *(double *)at = *(const double *)from; break;
    case MEMBER_TYPE_BOOL: *(bool *)at = *(const protobuf_c_boolean *)from; break;
    case MEMBER_TYPE_TEXT: *(const char **)at = *(char *const *)from; break;
    case MEMBER_TYPE_PATH: return fill_path(to, *(char *const *)from, field, with, at, e);
    case MEMBER_TYPE_TREE:
        return config_path_tree(with->paths, field, *(char *const *)from, with->roots, at,
                                (struct member_files *)(void *)(ret + to->count_at), e);
    default: return config_choice(field, *(char *const *)from, to->choices, at, e);
    }
    return ST_OK;
}

/* The member that is set in a message which is a choice, as `model`; NULL: none, or no message. */
static const ProtobufCFieldDescriptor *chosen_kind(const ProtobufCMessage *choice) {
    const uint32_t id = choice ? oneof_case(choice, &choice->descriptor->fields[0]) : 0;
    return id ? protobuf_c_message_descriptor_get_field(choice->descriptor, id) : NULL;
}

static status_t fill(const struct member *members, int n, const ProtobufCMessage *choice,
                     const ProtobufCFieldDescriptor *kind, const char *part, const struct filling *with, void *ret,
                     struct err *e) {
    char path[DATA_SOURCES_PATH];
    snprintf(path, sizeof path, "%s.%s", part, kind->name);
    for (int i = 0; i < n; i++)
        TRY(fill_member(&members[i], *(ProtobufCMessage *const *)field_value(choice, kind), path, with, ret, e));
    return ST_OK;
}

static status_t no_kind(const char *part, const ProtobufCFieldDescriptor *f, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "%s: %s", part, f ? "this build does not have it" : "it is missing");
}

status_t config_model(struct engine_config *c, const Trainyard__V1__ModelSpec *model, struct err *e) {
    const ProtobufCFieldDescriptor *f = chosen_kind(model ? &model->base : NULL);
    const struct model_kind *kind = f ? model_kind_find(f->name) : NULL;
    c->model = (struct model_config){ .kind = kind };
    return kind ? fill(kind->members, kind->n_members, &model->base, f, "model", NULL, c->model.shape, e)
                : no_kind("model", f, e);
}

/* A source of a mixture: a data kind with its own settings. */
static status_t fill_mixed(const Trainyard__V1__MixtureData__SourcesEntry *entry, const struct filling *with,
                           const struct roots *all_roots, struct data_mixture_source *ret, struct err *e) {
    const ProtobufCMessage *source = &entry->value->base;
    const char *name;
    char part[DATA_SOURCES_PATH];
    (void)data_sources_mixed(entry->value, &name);
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(source->descriptor, name);
    const struct data_kind *kind = data_kind_find(name);
    snprintf(part, sizeof part, "data.mixture.sources.%.32s", entry->key);
    *ret = (struct data_mixture_source){ .name = entry->key,
                                         .weight = entry->value->weight,
                                         .data = { .kind = kind, .roots = all_roots } };
    return fill(kind->members, kind->n_members, source, f, part, with, ret->data.settings, e);
}

/* The spec's names are sorted, and so are the weights of a phase. */
static status_t fill_mixture(const Trainyard__V1__MixtureData *m, const struct filling *with,
                             const struct roots *all_roots, struct data_mixture *ret, struct err *e) {
    struct data_mixture_source *sources = alloc_zeroed(m->n_sources + 1, sizeof *sources);
    struct data_mixture_phase *phases = alloc_zeroed(m->n_phases + 1, sizeof *phases);
    config_paths_keep(with->paths, sources);
    config_paths_keep(with->paths, phases);
    for (size_t i = 0; i < m->n_sources; i++)
        TRY(fill_mixed(m->sources[i], with, all_roots, &sources[i], e));
    for (size_t p = 0; p < m->n_phases; p++) {
        phases[p].from_sample = m->phases[p]->from_sample;
        for (size_t i = 0; i < m->n_sources; i++)
            phases[p].weights[i] = m->phases[p]->weights[i]->value;
    }
    *ret = (struct data_mixture){ sources, phases, (int)m->n_sources, (int)m->n_phases };
    return ST_OK;
}

status_t config_data(struct engine_config *c, const Trainyard__V1__DataSpec *data, struct config_paths *p,
                     const struct roots *roots, struct err *e) {
    const ProtobufCFieldDescriptor *f = chosen_kind(data ? &data->base : NULL);
    const struct data_kind *kind = f ? data_kind_find(f->name) : NULL;
    const struct filling with = { .paths = p, .roots = roots };
    c->workers = data && data->_workers_case ? data->workers : 0;
    c->prefetch = data && data->_prefetch_case ? data->prefetch : 0;
    c->data = (struct data_config){ .kind = kind, .roots = p->copies ? p->copies->roots : roots };
    if (kind && data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_MIXTURE)
        return fill_mixture(data->mixture, &with, c->data.roots, &c->data.mixture, e);
    return kind ? fill(kind->members, kind->n_members, &data->base, f, "data", &with, c->data.settings, e)
                : no_kind("data", f, e);
}

status_t config_optimizer(struct engine_train *t, const Trainyard__V1__OptimizerSpec *optimizer, struct err *e) {
    const ProtobufCFieldDescriptor *f = chosen_kind(optimizer ? &optimizer->base : NULL);
    const struct optimizer_kind *kind = f ? optimizer_kind_find(f->name) : NULL;
    t->optimizer = (struct optimizer_config){ .kind = kind };
    return kind ? fill(kind->members, kind->n_members, &optimizer->base, f, "train.optimizer", NULL,
                       t->optimizer.settings, e)
                : no_kind("train.optimizer", f, e);
}

status_t config_rate(struct engine_train *t, const Trainyard__V1__ScheduleSpec *schedule, struct err *e) {
    const ProtobufCFieldDescriptor *f = chosen_kind(schedule ? &schedule->base : NULL);
    t->schedule = (struct rate_schedule){ .kind = f ? rate_kind_find(f->name) : &rate_constant };
    if (!t->schedule.kind)
        return no_kind("train.learning_rate_schedule", f, e);
    return f ? fill(RATE_MEMBER, RATE_MEMBERS, &schedule->base, f, "train.learning_rate_schedule", NULL, &t->schedule,
                    e)
             : ST_OK;
}
