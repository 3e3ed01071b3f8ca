/* One pass of checkpoint garbage collection (run_pass) has up to three parts:
 *
 *   collect_requested      the jobs of checkpoint_gc_request, and the jobs of the checkpoints that these began with
 *   collect_overdue_once   once per epoch: a scan for jobs that have more checkpoints than they keep
 *   finish_deleting        if everything is due: all jobs with checkpoints in state DELETING
 *
 * Each part calls collect_job. It marks old checkpoints as DELETING (in finish_deleting, it only reads those that are
 * already marked), removes their folders, and marks each one as DELETED after its folder is gone. A crash between these
 * steps leaves DELETING rows, which the next pass or the next leader finishes.
 *
 * Requests are only in memory. If a request fails, or if there are too many, `through` is reset, and the next pass
 * scans all jobs. */
#include "service/controller/checkpoint_gc.h"

#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/log.h"
#include "service/controller/background_task.h"
#include "service/controller/checkpoint_files.h"
#include "service/store/checkpoint.h"
#include "service/store/job.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct checkpoint_gc {
    struct store *store;
    const struct checkpoint_place *place;
    struct background_task *background_task;
    pthread_mutex_t lock; /* guards the members below */
    int64_t waiting[CHECKPOINT_GC_MAX_WAITING];
    int n_waiting;
    int64_t through; /* the epoch in which all jobs were scanned; 0: the next pass scans them again */
};

/* ---- a job ---- */

static status_t remove_all(struct checkpoint_gc *r, int64_t epoch, const struct store_job *job,
                           const struct store_checkpoint *old, size_t n, struct err *e) {
    CLEANUP(spec_freep)
    Trainyard__V1__JobSpec *spec = trainyard__v1__job_spec__unpack(NULL, job->spec_bytes, job->spec);
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "its stored spec cannot be read");
    for (size_t i = 0; i < n && background_task_continues(r->background_task, epoch); i++) {
        TRY(checkpoint_files_remove(r->place, spec, &old[i], e));
        TRY(store_checkpoint_deleted(r->store, epoch, old[i].id, e));
    }
    return ST_OK;
}

/* begun: only checkpoints that are already DELETING. If the job was deleted meanwhile, that is no error: its
 * checkpoints are deleted with it. */
static status_t collect_job(struct checkpoint_gc *r, int64_t epoch, int64_t job, bool begun, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job row;
    struct store_checkpoint *old;
    size_t n;
    status_t st = store_job_get(r->store, m, job, &row, e);
    if (st == ST_OK)
        st = begun ? store_checkpoint_deleting(r->store, m, job, &old, &n, e)
                   : store_checkpoint_mark_garbage(r->store, m, epoch, job, &old, &n, e);
    if (st == ST_OK && n > 0)
        st = remove_all(r, epoch, &row, old, n, e);
    return st == ST_NOT_FOUND ? ST_OK : st;
}

/* The first checkpoint of a job, and the job's end, also free the checkpoint that the job began with. The job of that
 * checkpoint may have ended long before. The requested job itself may have been deleted since. */
static status_t collect_job_and_origin(struct checkpoint_gc *r, int64_t epoch, int64_t job, struct err *e) {
    struct store_origin origin;
    int64_t step;
    TRY(store_job_origin(r->store, job, &origin, &step, e));
    TRY(collect_job(r, epoch, job, false, e));
    return origin.checkpoint ? collect_job(r, epoch, origin.job, false, e) : ST_OK;
}

/* ---- a pass ---- */

static int64_t take(struct checkpoint_gc *r) {
    pthread_mutex_lock(&r->lock);
    int64_t job = r->n_waiting > 0 ? r->waiting[--r->n_waiting] : 0;
    pthread_mutex_unlock(&r->lock);
    return job;
}

static void rescan_later(struct checkpoint_gc *r) {
    pthread_mutex_lock(&r->lock);
    r->through = 0;
    pthread_mutex_unlock(&r->lock);
}

/* A request may never be repeated. If one fails, the next pass scans all jobs. Returns false then. */
static bool collect_requested(struct checkpoint_gc *r, int64_t epoch) {
    struct err e;
    bool done = true;
    for (int64_t job; background_task_continues(r->background_task, epoch) && (job = take(r)) != 0;) {
        if (collect_job_and_origin(r, epoch, job, &e) == ST_OK)
            continue;
        log_event(LOG_WARN, "checkpoints_not_deleted", "job", LOG_INT(job), "reason", LOG_STR(e.msg), NULL);
        done = false;
        rescan_later(r);
    }
    return done;
}

/* Scans for jobs that have more checkpoints than they keep: an earlier leader died before it marked a requested job, or
 * there were more requests than are remembered. */
static status_t collect_overdue(struct checkpoint_gc *r, int64_t epoch, bool *ret_done, struct err *e) {
    int64_t last = 0;
    *ret_done = true;
    do {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        int64_t *jobs;
        size_t n;
        TRY(store_checkpoint_overdue(r->store, m, last, &jobs, &n, &last, e));
        for (size_t i = 0; i < n && background_task_continues(r->background_task, epoch); i++) {
            struct err why;
            if (collect_job(r, epoch, jobs[i], false, &why) == ST_OK)
                continue;
            log_event(LOG_WARN, "checkpoints_not_deleted", "job", LOG_INT(jobs[i]), "reason", LOG_STR(why.msg), NULL);
            *ret_done = false;
        }
    } while (last && background_task_continues(r->background_task, epoch));
    return ST_OK;
}

/* Scans once per epoch, and again after a failure or a request that was not remembered. *ret_done: false if something
 * has failed. */
static status_t collect_overdue_once(struct checkpoint_gc *r, int64_t epoch, bool *ret_done, struct err *e) {
    pthread_mutex_lock(&r->lock);
    *ret_done = r->through == epoch;
    r->through = epoch;
    pthread_mutex_unlock(&r->lock);
    status_t st = *ret_done ? ST_OK : collect_overdue(r, epoch, ret_done, e);
    *ret_done = *ret_done && st == ST_OK;
    if (!*ret_done)
        rescan_later(r);
    return st;
}

/* Finishes the deletions that this or an earlier leader has begun. Many may fail in the same way in each pass, so that
 * one log line has their number and the first job. */
static status_t finish_deleting(struct checkpoint_gc *r, int64_t epoch, bool *ret_done, struct err *e) {
    int64_t job = 0, first = 0, failed = 0;
    struct err why, first_why;
    for (;;) {
        TRY(store_checkpoint_deleting_next(r->store, job, &job, e));
        if (!job || !background_task_continues(r->background_task, epoch))
            break;
        if (collect_job(r, epoch, job, true, &why) == ST_OK || failed++ > 0)
            continue;
        first = job;
        first_why = why;
    }
    *ret_done = failed == 0;
    if (failed)
        log_event(LOG_WARN, "checkpoints_not_deleted", "jobs", LOG_INT(failed), "job", LOG_INT(first), "reason",
                  LOG_STR(first_why.msg), NULL);
    return ST_OK;
}

static void log_failed(const struct err *e) {
    log_event(LOG_WARN, "checkpoints_not_deleted", "reason", LOG_STR(e->msg), NULL);
}

static bool run_pass(struct background_task *task, void *ctx, int64_t epoch, bool all) {
    (void)task;
    struct err e;
    const bool asked = collect_requested(ctx, epoch);
    bool through = false, removed = !all;
    if (collect_overdue_once(ctx, epoch, &through, &e) != ST_OK)
        log_failed(&e);
    if (all && finish_deleting(ctx, epoch, &removed, &e) != ST_OK)
        log_failed(&e);
    return asked && through && removed;
}

status_t checkpoint_gc_open(struct store *store, const struct checkpoint_place *place, struct checkpoint_gc **ret,
                            struct err *e) {
    CLEANUP(checkpoint_gc_closep) struct checkpoint_gc *r = alloc_zeroed(1, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    r->store = store;
    r->place = place;
    TRY(background_task_open("retention", CHECKPOINT_GC_PERIOD_MS, run_pass, r, &r->background_task, e));
    *ret = take_ptr(&r);
    return ST_OK;
}

struct checkpoint_gc *checkpoint_gc_close(struct checkpoint_gc *r) {
    if (!r)
        return NULL;
    background_task_close(r->background_task);
    pthread_mutex_destroy(&r->lock);
    free(r);
    return NULL;
}

void checkpoint_gc_lead(struct checkpoint_gc *r, int64_t epoch) { background_task_lead(r->background_task, epoch); }

void checkpoint_gc_request(struct checkpoint_gc *r, int64_t job) {
    pthread_mutex_lock(&r->lock);
    bool known = false;
    for (int i = 0; i < r->n_waiting; i++)
        known |= r->waiting[i] == job;
    if (!known && r->n_waiting < CHECKPOINT_GC_MAX_WAITING)
        r->waiting[r->n_waiting++] = job;
    else if (!known)
        r->through = 0;
    pthread_mutex_unlock(&r->lock);
    background_task_wake(r->background_task);
}
