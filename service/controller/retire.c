#include "service/controller/retire.h"

#include "base/log.h"
#include "service/controller/checkpoint_files.h"
#include "service/controller/chore.h"
#include "service/store/checkpoint.h"
#include "service/store/job.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct retire {
    struct store *store;
    char *checkpoints;
    struct chore *chore;
    pthread_mutex_t lock; /* guards what follows */
    int64_t waiting[RETIRE_WAITING];
    int n_waiting;
    int64_t through; /* the epoch in which all jobs were looked through; 0: they are to be, again */
};

/* ---- a job ---- */

static status_t remove_all(struct retire *r, int64_t epoch, const struct store_job *job,
                           const struct store_checkpoint *old, size_t n, struct err *e) {
    Trainyard__V1__JobSpec *spec = trainyard__v1__job_spec__unpack(NULL, job->spec_bytes, job->spec);
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "its stored spec cannot be read");
    status_t st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK && chore_goes_on(r->chore, epoch); i++) {
        st = checkpoint_files_remove(r->checkpoints, spec, &old[i], e);
        if (st == ST_OK)
            st = store_checkpoint_deleted(r->store, epoch, old[i].id, e);
    }
    trainyard__v1__job_spec__free_unpacked(spec, NULL);
    return st;
}

/* begun: only what is DELETING already. A job that was deleted meanwhile is no error: its checkpoints go with it. */
static status_t retire_own(struct retire *r, int64_t epoch, int64_t job, bool begun, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job row;
    struct store_checkpoint *old;
    size_t n;
    status_t st = store_job_get(r->store, m, job, &row, e);
    if (st == ST_OK)
        st = begun ? store_checkpoint_deleting(r->store, m, job, &old, &n, e)
                   : store_checkpoint_retire(r->store, m, epoch, job, &old, &n, e);
    if (st == ST_OK && n > 0)
        st = remove_all(r, epoch, &row, old, n, e);
    return st == ST_NOT_FOUND ? ST_OK : st;
}

/* A job's first checkpoint, and its end, also free the checkpoint that it began with, whose job may have ended long
 * before. The job itself may have been deleted since. */
static status_t retire_job(struct retire *r, int64_t epoch, int64_t job, struct err *e) {
    struct store_origin origin;
    int64_t step;
    TRY(store_job_origin(r->store, job, &origin, &step, e));
    TRY(retire_own(r, epoch, job, false, e));
    return origin.checkpoint ? retire_own(r, epoch, origin.job, false, e) : ST_OK;
}

/* ---- a look ---- */

static int64_t take(struct retire *r) {
    pthread_mutex_lock(&r->lock);
    int64_t job = r->n_waiting > 0 ? r->waiting[--r->n_waiting] : 0;
    pthread_mutex_unlock(&r->lock);
    return job;
}

static void look_through_again(struct retire *r) {
    pthread_mutex_lock(&r->lock);
    r->through = 0;
    pthread_mutex_unlock(&r->lock);
}

/* Nobody may ever name a job again: where one fails, all are looked through. False then. */
static bool retire_asked(struct retire *r, int64_t epoch) {
    struct err e;
    bool done = true;
    for (int64_t job; chore_goes_on(r->chore, epoch) && (job = take(r)) != 0;) {
        if (retire_job(r, epoch, job, &e) == ST_OK)
            continue;
        log_event(LOG_WARN, "checkpoints_not_retired", "job", LOG_INT(job), "reason", LOG_STR(e.msg), NULL);
        done = false;
        look_through_again(r);
    }
    return done;
}

/* Jobs of which more is there than they keep: an earlier leader died before it had marked what it was asked for, or so
 * much was asked for that it was not noted down. */
static status_t look_through(struct retire *r, int64_t epoch, bool *ret_done, struct err *e) {
    int64_t last = 0;
    *ret_done = true;
    do {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        int64_t *jobs;
        size_t n;
        TRY(store_checkpoint_overdue(r->store, m, last, &jobs, &n, &last, e));
        for (size_t i = 0; i < n && chore_goes_on(r->chore, epoch); i++) {
            struct err why;
            if (retire_own(r, epoch, jobs[i], false, &why) == ST_OK)
                continue;
            log_event(LOG_WARN, "checkpoints_not_retired", "job", LOG_INT(jobs[i]), "reason", LOG_STR(why.msg), NULL);
            *ret_done = false;
        }
    } while (last && chore_goes_on(r->chore, epoch));
    return ST_OK;
}

/* Once in an epoch, unless something fails or jobs were left out since. *ret_done: false where something has failed. */
static status_t look_through_once(struct retire *r, int64_t epoch, bool *ret_done, struct err *e) {
    pthread_mutex_lock(&r->lock);
    *ret_done = r->through == epoch;
    r->through = epoch;
    pthread_mutex_unlock(&r->lock);
    status_t st = *ret_done ? ST_OK : look_through(r, epoch, ret_done, e);
    *ret_done = *ret_done && st == ST_OK;
    if (!*ret_done)
        look_through_again(r);
    return st;
}

/* Jobs whose removals have begun, by whomever. Many may fail alike, again and again: one line tells of the first. */
static status_t go_on_with_all(struct retire *r, int64_t epoch, bool *ret_done, struct err *e) {
    int64_t job = 0, first = 0, failed = 0;
    struct err why, first_why;
    for (;;) {
        TRY(store_checkpoint_deleting_next(r->store, job, &job, e));
        if (!job || !chore_goes_on(r->chore, epoch))
            break;
        if (retire_own(r, epoch, job, true, &why) == ST_OK || failed++ > 0)
            continue;
        first = job;
        first_why = why;
    }
    *ret_done = failed == 0;
    if (failed)
        log_event(LOG_WARN, "checkpoints_not_retired", "jobs", LOG_INT(failed), "job", LOG_INT(first), "reason",
                  LOG_STR(first_why.msg), NULL);
    return ST_OK;
}

static void tell_failed(const struct err *e) {
    log_event(LOG_WARN, "checkpoints_not_retired", "reason", LOG_STR(e->msg), NULL);
}

static bool on_look(struct chore *chore, void *ctx, int64_t epoch, bool all) {
    (void)chore;
    struct err e;
    const bool asked = retire_asked(ctx, epoch);
    bool through = false, removed = !all;
    if (look_through_once(ctx, epoch, &through, &e) != ST_OK)
        tell_failed(&e);
    if (all && go_on_with_all(ctx, epoch, &removed, &e) != ST_OK)
        tell_failed(&e);
    return asked && through && removed;
}

status_t retire_open(struct store *store, const char *checkpoints, struct retire **ret, struct err *e) {
    CLEANUP(retire_closep) struct retire *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for retention");
    pthread_mutex_init(&r->lock, NULL);
    r->store = store;
    r->checkpoints = strdup(checkpoints);
    if (!r->checkpoints)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for retention");
    TRY(chore_open("retention", RETIRE_LOOK_MS, on_look, r, &r->chore, e));
    *ret = take_ptr(&r);
    return ST_OK;
}

struct retire *retire_close(struct retire *r) {
    if (!r)
        return NULL;
    chore_close(r->chore);
    pthread_mutex_destroy(&r->lock);
    free(r->checkpoints);
    free(r);
    return NULL;
}

void retire_lead(struct retire *r, int64_t epoch) { chore_lead(r->chore, epoch); }

void retire_soon(struct retire *r, int64_t job) {
    pthread_mutex_lock(&r->lock);
    bool known = false;
    for (int i = 0; i < r->n_waiting; i++)
        known |= r->waiting[i] == job;
    if (!known && r->n_waiting < RETIRE_WAITING)
        r->waiting[r->n_waiting++] = job;
    else if (!known)
        r->through = 0;
    pthread_mutex_unlock(&r->lock);
    chore_ask(r->chore);
}
