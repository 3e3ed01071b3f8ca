#include "service/controller/launch.h"

#include "api/spec/spec.h"
#include "base/array.h"

#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_launch(void *p) {
    struct launch *l = p;
    if (l->executors)
        for (int r = 0; r < l->world_size; r++)
            free(l->executors[r]);
    free(l->executors);
    spec_free(l->spec);
    free(l->checkpoint_directory);
    free(l->resume_directory);
    free(l->init_directory);
    free(l);
}

void launches_done(struct launches *l) {
    tdestroy(l->by_job, free_launch);
    l->by_job = NULL;
}

status_t launch_directory(const Trainyard__V1__JobSpec *spec, const char *checkpoints, int64_t job, int attempt,
                          char **ret, struct err *e) {
    char own[4096];
    const char *base = checkpoints;
    if (spec->checkpoint && spec->checkpoint->directory && spec->checkpoint->directory[0]) {
        TRY(spec_uri_path(spec->checkpoint->directory, own, sizeof own, e));
        base = own;
    }
    if (asprintf(ret, "%s/%lld/attempt-%d", base, (long long)job, attempt) < 0) {
        *ret = NULL;
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a path of job %lld", (long long)job);
    }
    return ST_OK;
}

static status_t fill(struct launch *l, const struct launch_order *o, struct err *e) {
    l->job = o->job;
    l->attempt = o->attempt;
    l->world_size = o->world_size;
    l->resume_checkpoint = o->resume_checkpoint;
    l->spec = trainyard__v1__job_spec__unpack(NULL, o->spec_bytes, o->spec);
    if (!l->spec)
        return err_set(e, ST_DATA_LOSS, "job %lld: its stored spec cannot be read", (long long)o->job);
    TRY(launch_directory(l->spec, o->checkpoints, o->job, o->attempt, &l->checkpoint_directory, e));
    l->forked = o->forked;
    l->init_directory = strdup(o->init_directory ? o->init_directory : "");
    l->resume_directory = strdup(o->resume_directory);
    l->executors = calloc((size_t)o->world_size, sizeof *l->executors);
    bool whole = l->resume_directory && l->init_directory && l->executors;
    for (int r = 0; whole && r < o->world_size; r++)
        whole = (l->executors[r] = strdup(o->executors[r])) != NULL;
    return whole ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to start job %lld", (long long)o->job);
}

status_t launch_put(struct launches *l, const struct launch_order *order, struct err *e) {
    launch_forget(l, order->job);
    struct launch *launch = calloc(1, sizeof *launch);
    if (!launch)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to start job %lld", (long long)order->job);
    status_t st = fill(launch, order, e);
    if (st == ST_OK && !tsearch(launch, &l->by_job, array_by_int64))
        st = err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to start job %lld", (long long)order->job);
    if (st != ST_OK)
        free_launch(launch);
    return st;
}

const struct launch *launch_find(const struct launches *l, int64_t job, int attempt) {
    void *const *node = tfind(&job, &l->by_job, array_by_int64);
    const struct launch *launch = node ? *node : NULL;
    return launch && launch->attempt == attempt ? launch : NULL;
}

void launch_forget(struct launches *l, int64_t job) {
    void *const *node = tfind(&job, &l->by_job, array_by_int64);
    if (!node)
        return;
    struct launch *launch = *node;
    tdelete(&job, &l->by_job, array_by_int64);
    free_launch(launch);
}

size_t launch_ranks(const struct launch *launch, const char *executor, int32_t *ret) {
    size_t n = 0;
    for (int r = 0; r < launch->world_size; r++)
        if (strcmp(launch->executors[r], executor) == 0)
            ret[n++] = r;
    return n;
}
