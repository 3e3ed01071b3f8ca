/* One pass of job garbage collection (run_pass):
 *
 *   forget_lost     if everything is due: forgets executors that were lost long ago
 *   trim_audit     if everything is due: deletes old entries of the audit log
 *   mark_ended      if everything is due: marks jobs that ended long ago as deleted, at most JOB_GC_MAX_MARKS, and
 *                   deletes sweeps that ended long ago
 *   remove_marked   removes all jobs that are marked as deleted, one after the other
 *
 * remove_job first removes the files of the job's checkpoints, then what else its attempts left, and then its rows in
 * batches. The rows are last, because only they name the files. A job whose checkpoint another job still needs fails
 * and is tried again: after each round that removed a job, remove_marked runs once more in the same pass. A pass in
 * which a job failed is incomplete, and background_task.c repeats it soon. */
#include "service/controller/job_gc.h"

#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/log.h"
#include "service/controller/background_task.h"
#include "service/controller/checkpoint_files.h"
#include "service/store/audit.h"
#include "service/store/checkpoint.h"
#include "service/store/executor.h"
#include "service/store/job_delete.h"
#include "service/store/sweep.h"

#include <stdlib.h>
#include <string.h>

struct job_gc {
    struct store *store;
    const struct checkpoint_place *place;
    struct job_gc_days days;
    struct background_task *background_task;
};

static bool goes_on(const struct job_gc *p, int64_t epoch) {
    return background_task_continues(p->background_task, epoch);
}

/* ---- a job ---- */

static status_t remove_files(struct job_gc *p, int64_t epoch, const struct store_deleted_job *job,
                             const Trainyard__V1__JobSpec *spec, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_checkpoint *rows;
    size_t n;
    TRY(store_checkpoint_deleting(p->store, m, job->job, &rows, &n, e));
    for (size_t i = 0; i < n && goes_on(p, epoch); i++) {
        TRY(checkpoint_files_remove(p->place, spec, &rows[i], e));
        TRY(store_checkpoint_deleted(p->store, epoch, rows[i].id, e));
    }
    return goes_on(p, epoch) ? checkpoint_files_sweep(p->place, spec, job->job, job->attempts, e) : ST_OK;
}

static status_t remove_job(struct job_gc *p, int64_t epoch, const struct store_deleted_job *job, struct err *e) {
    CLEANUP(spec_freep)
    Trainyard__V1__JobSpec *spec = trainyard__v1__job_spec__unpack(NULL, job->spec_bytes, job->spec);
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "its stored spec cannot be read");
    TRY(remove_files(p, epoch, job, spec, e));
    struct store_delete_at at = { 0 };
    bool done = false;
    while (!done && goes_on(p, epoch))
        TRY(store_job_delete_rows(p->store, epoch, job->job, &at, &done, e));
    if (done)
        log_event(LOG_INFO, "job_removed", "job", LOG_INT(job->job), NULL);
    return ST_OK;
}

/* ---- a pass ---- */

static status_t mark_ended(struct job_gc *p, int64_t epoch, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    int64_t *jobs;
    size_t n;
    TRY(store_job_ended_before(p->store, m, p->days.ended, JOB_GC_MAX_MARKS, &jobs, &n, e));
    for (size_t i = 0; i < n && goes_on(p, epoch); i++) {
        status_t st = store_job_delete(p->store, epoch, jobs[i], e);
        if (st == ST_OK)
            log_event(LOG_INFO, "job_deleted", "job", LOG_INT(jobs[i]), "reason", LOG_STR("it ended long ago"), NULL);
        else if (st != ST_FAILED_PRECONDITION) /* else another job has meanwhile begun with one of its checkpoints */
            return st;
    }
    int64_t sweeps;
    TRY(store_sweep_delete_old(p->store, epoch, p->days.ended, JOB_GC_MAX_SWEEPS, &sweeps, e));
    if (sweeps > 0)
        log_event(LOG_INFO, "sweeps_deleted", "sweeps", LOG_INT(sweeps), "reason", LOG_STR("they ended long ago"),
                  NULL);
    return ST_OK;
}

static status_t forget_lost(const struct job_gc *p, int64_t epoch, struct err *e) {
    int64_t n;
    TRY(store_executor_forget(p->store, epoch, p->days.lost, JOB_GC_MAX_MARKS, &n, e));
    if (n > 0)
        log_event(LOG_INFO, "executors_forgotten", "executors", LOG_INT(n), "reason",
                  LOG_STR("they were lost long ago"), NULL);
    return ST_OK;
}

static status_t trim_audit(const struct job_gc *p, int64_t epoch, struct err *e) {
    int64_t all = 0;
    for (int64_t n = JOB_GC_AUDIT_BATCH; n == JOB_GC_AUDIT_BATCH && goes_on(p, epoch); all += n)
        TRY(store_audit_trim(p->store, epoch, p->days.audit, JOB_GC_AUDIT_BATCH, &n, e));
    if (all > 0)
        log_event(LOG_INFO, "audit_trimmed", "entries", LOG_INT(all), "days", LOG_INT(p->days.audit), NULL);
    return ST_OK;
}

struct pass {
    bool removed; /* at least one job was removed; another job may have waited for that */
    int64_t failed, first;
    struct err why; /* the reason of the first failure */
};

/* Removes the marked jobs one after the other, and continues after a failure. */
static status_t remove_marked(struct job_gc *p, int64_t epoch, struct pass *ret, struct err *e) {
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

/* Many jobs may fail in the same way in each pass, so that one log line has their number and the first job. */
static status_t remove_jobs(struct job_gc *p, int64_t epoch, bool all, bool *ret_done, struct err *e) {
    struct pass pass = { .removed = true };
    if (all && p->days.ended > 0)
        TRY(mark_ended(p, epoch, e));
    while (pass.removed && goes_on(p, epoch))
        TRY(remove_marked(p, epoch, &pass, e));
    *ret_done = pass.failed == 0;
    if (pass.failed)
        log_event(LOG_WARN, "jobs_not_removed", "jobs", LOG_INT(pass.failed), "job", LOG_INT(pass.first), "reason",
                  LOG_STR(pass.why.msg), NULL);
    return ST_OK;
}

static bool run_pass(struct background_task *task, void *ctx, int64_t epoch, bool all) {
    (void)task;
    bool done = false;
    const struct job_gc *p = ctx;
    struct err e;
    const bool forgotten = !all || p->days.lost == 0 || forget_lost(p, epoch, &e) == ST_OK;
    if (!forgotten) /* jobs are removed all the same */
        log_event(LOG_WARN, "executors_not_forgotten", "reason", LOG_STR(e.msg), NULL);
    const bool trimmed = !all || p->days.audit == 0 || trim_audit(p, epoch, &e) == ST_OK;
    if (!trimmed)
        log_event(LOG_WARN, "audit_not_trimmed", "reason", LOG_STR(e.msg), NULL);
    if (remove_jobs(ctx, epoch, all, &done, &e) != ST_OK)
        log_event(LOG_WARN, "jobs_not_removed", "reason", LOG_STR(e.msg), NULL);
    return done && forgotten && trimmed;
}

status_t job_gc_open(struct store *store, const struct checkpoint_place *place, const struct job_gc_days *days,
                     struct job_gc **ret, struct err *e) {
    CLEANUP(job_gc_closep) struct job_gc *p = alloc_zeroed(1, sizeof *p);
    p->store = store;
    p->place = place;
    p->days = *days;
    TRY(background_task_open("deleted jobs", JOB_GC_PERIOD_MS, run_pass, p, &p->background_task, e));
    *ret = take_ptr(&p);
    return ST_OK;
}

struct job_gc *job_gc_close(struct job_gc *p) {
    if (!p)
        return NULL;
    background_task_close(p->background_task);
    free(p);
    return NULL;
}

void job_gc_lead(struct job_gc *p, int64_t epoch) { background_task_lead(p->background_task, epoch); }

void job_gc_wake(struct job_gc *p) { background_task_wake(p->background_task); }
