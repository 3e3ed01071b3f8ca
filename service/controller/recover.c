#include "base/limits.h"
#include "base/log.h"
#include "service/controller/row_state.h"
#include "service/controller/state.h"
#include "service/store/checkpoint.h"
#include "service/store/executor.h"

#include <stdlib.h>
#include <string.h>

static status_t committed_step(struct controller *c, struct store_memory *m, const struct store_live_job *live,
                               int64_t *ret, struct err *e) {
    struct store_checkpoint newest;
    *ret = -1;
    status_t st = store_checkpoint_newest(c->store, m, live->job.id, &newest, e);
    if (st == ST_NOT_FOUND)
        return ST_OK;
    if (st == ST_OK && newest.attempt == live->job.attempt)
        *ret = newest.step;
    return st;
}

static status_t load_attempt(struct controller *c, struct store_memory *m, const struct store_live_job *live,
                             struct scheduler_job_row *row, struct err *e) {
    TRY(committed_step(c, m, live, &row->committed_step, e));
    struct launch_order order = { .job = live->job.id,
                                  .attempt = live->job.attempt,
                                  .world_size = live->job.world_size,
                                  .executors = live->executors,
                                  .spec = live->job.spec,
                                  .spec_bytes = live->job.spec_bytes,
                                  .checkpoints = c->checkpoints,
                                  .resume_directory = live->resume_directory,
                                  .resume_checkpoint = live->from_checkpoint,
                                  .forked = live->forked,
                                  .init_directory = live->init_directory };
    TRY(launch_put(&c->launches, &order, e));
    return rendezvous_expect(c->rendezvous, live->job.id, live->job.attempt, live->job.world_size, e);
}

static status_t load_job(struct controller *c, struct store_memory *m, const struct store_live_job *live,
                         struct err *e) {
    bool *started = calloc((size_t)live->job.world_size + 1, sizeof *started);
    if (!started)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for job %lld", (long long)live->job.id);
    struct scheduler_job_row row = scheduler_row_of(&live->job);
    status_t st = ST_OK;
    row.final_committed = live->final_committed;
    if (live->attempt_open) {
        for (int r = 0; r < live->job.world_size; r++)
            started[r] = live->pids[r] != 0;
        row.placement = live->executors;
        row.started = started;
        st = load_attempt(c, m, live, &row, e);
    }
    if (st == ST_OK)
        st = scheduler_load(c->scheduler, &row, clock_mono_ms(), e);
    free(started);
    return st;
}

struct scheduler_job_row scheduler_row_of(const struct store_job *job) {
    return (struct scheduler_job_row){ .job = job->id,
                                       .state = row_state_read(job->state),
                                       .priority = job->priority,
                                       .world_size = job->world_size,
                                       .slot = strcmp(job->accelerator, "cuda") == 0 ? SCHEDULER_SLOT_CUDA
                                                                                     : SCHEDULER_SLOT_CPU,
                                       .max_restarts = job->max_restarts,
                                       .restarts = job->restarts,
                                       .attempt = job->attempt,
                                       .committed_step = -1 };
}

struct scheduler_drain scheduler_drain_of(const struct store_executor *row) {
    return (struct scheduler_drain){ .drained = row->drain_time_us != 0,
                                     .now = row->drain_now,
                                     .reason = row->drain_reason };
}

static status_t load_executors(struct controller *c, struct store_memory *m, struct err *e) {
    struct store_executor *rows;
    size_t n;
    const char *after = "";
    do {
        TRY(store_executor_list(c->store, m, after, LIMIT_PAGE_SIZE, &rows, &n, e));
        for (size_t i = 0; i < n; i++) {
            const bool attached = rows[i].state == STORE_EXECUTOR_ATTACHED;
            const struct scheduler_drain drain = scheduler_drain_of(&rows[i]);
            if (attached || drain.drained)
                TRY(scheduler_load_executor(c->scheduler, rows[i].id, attached, &drain, clock_mono_ms(), e));
        }
        if (n > 0)
            after = rows[n - 1].id;
    } while (n == LIMIT_PAGE_SIZE);
    return ST_OK;
}

status_t recover(struct controller *c, struct err *e) {
    scheduler_free(c->scheduler);
    launches_done(&c->launches);
    c->scheduler = scheduler_new(clock_mono_ms());
    if (!c->scheduler)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the scheduler");
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_live_job *jobs;
    size_t n;
    TRY(load_executors(c, m, e));
    TRY(store_job_live(c->store, m, &jobs, &n, e));
    for (size_t i = 0; i < n; i++)
        TRY(load_job(c, m, &jobs[i], e));
    log_event(LOG_INFO, "recovered", "jobs", LOG_INT((int64_t)n), NULL);
    return ST_OK;
}
