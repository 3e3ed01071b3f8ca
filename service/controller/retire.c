#include "service/controller/retire.h"

#include "base/file.h"
#include "base/log.h"
#include "service/controller/launch.h"
#include "service/store/checkpoint.h"
#include "service/store/job.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct retire {
    struct store *store;
    char *checkpoints;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    bool runs, closing;
    int64_t epoch, waiting[RETIRE_WAITING];
    int waiting_n;
};

/* True when the row's folder is the one that the controller gave to this attempt, and it is in reach. */
static bool is_ours(const struct retire *r, const Trainyard__V1__JobSpec *spec, const struct store_checkpoint *row) {
    char *attempt = NULL;
    struct err e;
    if (launch_directory(spec, r->checkpoints, row->job, row->attempt, &attempt, &e) != ST_OK)
        return false;
    char wanted[4352];
    snprintf(wanted, sizeof wanted, "%s/step-%lld", attempt, (long long)row->step);
    bool ours = strcmp(wanted, row->directory) == 0;
    bool reachable = access(attempt, W_OK) == 0;
    if (!ours)
        log_event(LOG_WARN, "checkpoint_kept", "checkpoint", LOG_INT(row->id), "directory", LOG_STR(row->directory),
                  "reason", LOG_STR("the folder is not the one that its attempt was given"), NULL);
    free(attempt);
    return ours && reachable;
}

static status_t remove_one(const struct retire *r, int64_t epoch, const struct store_checkpoint *row, struct err *e) {
    TRY(dir_remove(row->directory, e));
    log_event(LOG_INFO, "checkpoint_deleted", "job", LOG_INT(row->job), "checkpoint", LOG_INT(row->id), "step",
              LOG_INT(row->step), NULL);
    return store_checkpoint_deleted(r->store, epoch, row->id, e);
}

static status_t retire_own(const struct retire *r, int64_t epoch, int64_t job, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job row;
    struct store_checkpoint *old;
    size_t n;
    TRY(store_job_get(r->store, m, job, &row, e));
    TRY(store_checkpoint_retire(r->store, m, epoch, job, &old, &n, e));
    if (n == 0)
        return ST_OK;
    Trainyard__V1__JobSpec *spec = trainyard__v1__job_spec__unpack(NULL, row.spec_bytes, row.spec);
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "job %lld: its stored spec cannot be read", (long long)job);
    status_t st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++)
        if (is_ours(r, spec, &old[i]))
            st = remove_one(r, epoch, &old[i], e);
    trainyard__v1__job_spec__free_unpacked(spec, NULL);
    return st;
}

/* A job's first checkpoint, and its end, also free the checkpoint that it began with, whose job may have ended long
 * before. */
static status_t retire_job(const struct retire *r, int64_t epoch, int64_t job, struct err *e) {
    struct store_origin origin;
    int64_t step;
    TRY(retire_own(r, epoch, job, e));
    TRY(store_job_origin(r->store, job, &origin, &step, e));
    return origin.checkpoint ? retire_own(r, epoch, origin.job, e) : ST_OK;
}

static void *run(void *arg) {
    struct retire *r = arg;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->closing && (r->waiting_n == 0 || r->epoch == 0))
            pthread_cond_wait(&r->work, &r->lock);
        if (r->closing)
            break;
        int64_t job = r->waiting[--r->waiting_n], epoch = r->epoch;
        pthread_mutex_unlock(&r->lock);
        struct err e;
        /* What fails now is done with the job's next checkpoint, or its end. */
        if (retire_job(r, epoch, job, &e) != ST_OK)
            log_event(LOG_WARN, "checkpoints_not_retired", "job", LOG_INT(job), "reason", LOG_STR(e.msg), NULL);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

status_t retire_open(struct store *store, const char *checkpoints, struct retire **ret, struct err *e) {
    struct retire *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for retention");
    r->store = store;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    r->checkpoints = strdup(checkpoints);
    r->runs = r->checkpoints && pthread_create(&r->thread, NULL, run, r) == 0;
    if (!r->runs) {
        retire_close(r);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for retention");
    }
    *ret = r;
    return ST_OK;
}

struct retire *retire_close(struct retire *r) {
    if (!r)
        return NULL;
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
    if (r->runs)
        pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    free(r->checkpoints);
    free(r);
    return NULL;
}

void retire_lead(struct retire *r, int64_t epoch) {
    pthread_mutex_lock(&r->lock);
    r->epoch = epoch;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}

void retire_soon(struct retire *r, int64_t job) {
    pthread_mutex_lock(&r->lock);
    bool known = false;
    for (int i = 0; i < r->waiting_n; i++)
        known |= r->waiting[i] == job;
    if (!known && r->waiting_n < RETIRE_WAITING)
        r->waiting[r->waiting_n++] = job;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}
