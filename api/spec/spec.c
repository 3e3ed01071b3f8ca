#include "api/spec/spec.h"

#include "api/codec/message.h"
#include "api/spec/defaults.h"
#include "api/spec/fields.h"
#include "api/spec/problems.h"
#include "api/spec/rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Refuses fields of a newer version, which a decoder would otherwise drop. */
static void check_unknown(const ProtobufCMessage *msg, const char *path, struct spec_problems *p) {
    for (unsigned i = 0; i < msg->n_unknown_fields; i++)
        problem_add(p, "%s%sfield number %u is not known to this version", path, *path ? ": " : "",
                    msg->unknown_fields[i].tag);
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &msg->descriptor->fields[i];
        char below[128];
        size_t n = 1;
        if (f->type != PROTOBUF_C_TYPE_MESSAGE || (!field_is_repeated(f) && !field_is_set(msg, f)))
            continue;
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "", f->name);
        ProtobufCMessage *const *all = field_is_repeated(f) ? field_elements(msg, f, &n) : field_value(msg, f);
        for (size_t m = 0; m < n; m++) /* an entry of a map has its value as a field */
            check_unknown(all[m], below, p);
    }
}

status_t spec_copy(const Trainyard__V1__JobSpec *spec, Trainyard__V1__JobSpec **ret, struct err *e) {
    return message_copy(&spec->base, ret, e);
}

/* For a caller that shows one sentence: the first problem, and the number of others. */
static status_t refuse(const struct spec_problems *p, struct err *e) {
    if (p->n == 1)
        return err_set(e, ST_INVALID_ARGUMENT, "%s", p->lines[0]);
    return err_set(e, ST_INVALID_ARGUMENT, "%s (and %zu more problem%s)", p->lines[0], p->n - 1, p->n > 2 ? "s" : "");
}

status_t spec_resolve(const Trainyard__V1__JobSpec *given, Trainyard__V1__JobSpec **ret, struct spec_problems *problems,
                      struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    struct spec_problems own = { 0 }, *p = problems ? problems : &own;
    TRY(spec_copy(given, &spec, e));
    TRY(defaults_fill(spec, e));
    check_unknown(&spec->base, "", p);
    rules_check(spec, p);
    status_t st = p->n == 0 ? ST_OK : refuse(p, e);
    spec_problems_done(&own);
    if (st == ST_OK)
        *ret = take_ptr(&spec);
    return st;
}

Trainyard__V1__JobSpec *spec_free(Trainyard__V1__JobSpec *spec) {
    if (spec)
        trainyard__v1__job_spec__free_unpacked(spec, NULL);
    return NULL;
}

bool spec_is_program(const Trainyard__V1__JobSpec *spec) { return spec->program != NULL; }

int64_t spec_steps(const Trainyard__V1__JobSpec *spec) { return spec->train ? spec->train->steps : 0; }

int32_t spec_world_size(const Trainyard__V1__JobSpec *spec) {
    const Trainyard__V1__ParallelSpec *l = spec->parallel;
    return l->elastic ? l->elastic->min : l->data * l->pipeline;
}

int32_t spec_max_world_size(const Trainyard__V1__JobSpec *spec) {
    return spec->parallel->elastic ? spec->parallel->elastic->max : spec_world_size(spec);
}

bool spec_stops_at_step(const Trainyard__V1__JobSpec *spec) {
    return spec->program && spec->program->stop && strcmp(spec->program->stop, "step") == 0;
}

bool spec_may_change_data(const Trainyard__V1__JobSpec *spec) {
    const Trainyard__V1__TrainSpec *t = spec->train;
    return t && t->_changed_data_case && strcmp(t->changed_data, "refuse") != 0;
}

int32_t spec_micro_batches(const Trainyard__V1__JobSpec *spec) {
    const Trainyard__V1__TrainSpec *t = spec->train;
    return t && t->_micro_batch_case ? t->global_batch / t->micro_batch : 0;
}

int64_t spec_tokens_per_step(const Trainyard__V1__JobSpec *spec) {
    if (spec_is_program(spec))
        return 0;
    const int32_t *context = spec_value(spec_member_message(&spec->model->base), "context");
    return context ? (int64_t)spec->train->global_batch * *context : 0;
}

bool spec_has_auto(const Trainyard__V1__JobSpec *spec) {
    return spec->train && (!spec->train->_micro_batch_case || strcmp(spec->train->recompute, "auto") == 0);
}

/* Digits without a leading zero, of a positive number. */
static bool take_number(const char **at, int64_t *ret) {
    char *end;
    errno = 0;
    *ret = **at >= '1' && **at <= '9' ? strtoll(*at, &end, 10) : 0;
    if (*ret <= 0 || errno)
        return false;
    *at = end;
    return true;
}

static bool take_word(const char **at, const char *word) {
    size_t n = strlen(word);
    bool there = strncmp(*at, word, n) == 0;
    *at += there ? n : 0;
    return there;
}

bool spec_checkpoint_name(const char *name, int64_t *ret_job, int64_t *ret_checkpoint) {
    int64_t job, checkpoint;
    if (!take_word(&name, "jobs/") || !take_number(&name, &job) || !take_word(&name, "/checkpoints/") ||
        !take_number(&name, &checkpoint) || *name)
        return false;
    *ret_job = job;
    *ret_checkpoint = checkpoint;
    return true;
}
