#include "service/controller/prune.h"

#include "base/log.h"
#include "service/controller/checkpoint_files.h"
#include "service/controller/chore.h"
#include "service/store/checkpoint.h"
#include "service/store/job_delete.h"

#include <stdlib.h>
#include <string.h>

struct prune {
    struct store *store;
    char *checkpoints;
    int keep_ended_days;
    struct chore *chore;
};

static bool goes_on(const struct prune *p, int64_t epoch) { return chore_goes_on(p->chore, epoch); }

/* ---- a job ---- */

static status_t remove_files(struct prune *p, int64_t epoch, const struct store_deleted_job *job,
                             const Trainyard__V1__JobSpec *spec, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_checkpoint *rows;
    size_t n;
    TRY(store_checkpoint_deleting(p->store, m, job->job, &rows, &n, e));
    for (size_t i = 0; i < n && goes_on(p, epoch); i++) {
        TRY(checkpoint_files_remove(p->checkpoints, spec, &rows[i], e));
        TRY(store_checkpoint_deleted(p->store, epoch, rows[i].id, e));
    }
    return goes_on(p, epoch) ? checkpoint_files_sweep(p->checkpoints, spec, job->job, job->attempts, e) : ST_OK;
}

static status_t remove_job(struct prune *p, int64_t epoch, const struct store_deleted_job *job, struct err *e) {
    Trainyard__V1__JobSpec *spec = trainyard__v1__job_spec__unpack(NULL, job->spec_bytes, job->spec);
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "its stored spec cannot be read");
    status_t st = remove_files(p, epoch, job, spec, e);
    trainyard__v1__job_spec__free_unpacked(spec, NULL);
    struct store_delete_at at = { 0 };
    bool done = false;
    while (st == ST_OK && !done && goes_on(p, epoch))
        st = store_job_delete_rows(p->store, epoch, job->job, &at, &done, e);
    if (done)
        log_event(LOG_INFO, "job_removed", "job", LOG_INT(job->job), NULL);
    return st;
}

/* ---- a look ---- */

static status_t mark_ended(struct prune *p, int64_t epoch, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    int64_t *jobs;
    size_t n;
    TRY(store_job_ended_before(p->store, m, p->keep_ended_days, PRUNE_MARKS, &jobs, &n, e));
    for (size_t i = 0; i < n && goes_on(p, epoch); i++) {
        status_t st = store_job_delete(p->store, epoch, jobs[i], e);
        if (st == ST_OK)
            log_event(LOG_INFO, "job_deleted", "job", LOG_INT(jobs[i]), "reason", LOG_STR("it ended long ago"), NULL);
        else if (st != ST_FAILED_PRECONDITION) /* else another job has begun with it meanwhile */
            return st;
    }
    return ST_OK;
}

struct pass {
    bool removed; /* a job, which another may have waited for */
    int64_t failed, first;
    struct err why; /* the first's */
};

/* One after the other. */
static status_t remove_marked(struct prune *p, int64_t epoch, struct pass *ret, struct err *e) {
    *ret = (struct pass){ 0 };
    for (int64_t after = 0; goes_on(p, epoch);) {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_deleted_job job;
        struct err why;
        TRY(store_job_delete_next(p->store, m, after, &job, e));
        if (!job.job)
            break;
        after = job.job;
        if (remove_job(p, epoch, &job, &why) == ST_OK) {
            ret->removed = true;
        } else if (ret->failed++ == 0) {
            ret->first = job.job;
            ret->why = why;
        }
    }
    return ST_OK;
}

/* Many may wait alike, again and again: one line tells of the first. */
static status_t look(struct prune *p, int64_t epoch, bool all, bool *ret_done, struct err *e) {
    struct pass pass = { .removed = true };
    if (all && p->keep_ended_days > 0)
        TRY(mark_ended(p, epoch, e));
    while (pass.removed && goes_on(p, epoch))
        TRY(remove_marked(p, epoch, &pass, e));
    *ret_done = pass.failed == 0;
    if (pass.failed)
        log_event(LOG_WARN, "jobs_not_removed", "jobs", LOG_INT(pass.failed), "job", LOG_INT(pass.first), "reason",
                  LOG_STR(pass.why.msg), NULL);
    return ST_OK;
}

static bool on_look(struct chore *chore, void *ctx, int64_t epoch, bool all) {
    (void)chore;
    bool done = false;
    struct err e;
    if (look(ctx, epoch, all, &done, &e) != ST_OK)
        log_event(LOG_WARN, "jobs_not_removed", "reason", LOG_STR(e.msg), NULL);
    return done;
}

status_t prune_open(struct store *store, const char *checkpoints, int keep_ended_days, struct prune **ret,
                    struct err *e) {
    CLEANUP(prune_closep) struct prune *p = calloc(1, sizeof *p);
    if (!p || !(p->checkpoints = strdup(checkpoints)))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for deleted jobs");
    p->store = store;
    p->keep_ended_days = keep_ended_days;
    TRY(chore_open("deleted jobs", PRUNE_LOOK_MS, on_look, p, &p->chore, e));
    *ret = take_ptr(&p);
    return ST_OK;
}

struct prune *prune_close(struct prune *p) {
    if (!p)
        return NULL;
    chore_close(p->chore);
    free(p->checkpoints);
    free(p);
    return NULL;
}

void prune_lead(struct prune *p, int64_t epoch) { chore_lead(p->chore, epoch); }

void prune_soon(struct prune *p) { chore_ask(p->chore); }
