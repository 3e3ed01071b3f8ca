/* Builds a scheduler from the rows, when a controller begins to lead:
 *
 *   load_executors   all live executors, in pages of LIMIT_PAGE_SIZE, with their drain marks
 *   load_jobs        all live jobs, in pages of PAGE_JOBS, ordered by id, each with the hosts that have failed it. A
 *                    job with an open attempt also gets its placement, its start order and a rendezvous
 *
 * Each executor gets one full lease. Until it attaches or the lease expires, the scheduler decides nothing about its
 * ranks, so that workers survive a change of the leader. The rows do not show whether a process still runs: agents
 * report it when they attach (service/scheduler/adopt.c). */
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/controller/row_state.h"
#include "service/controller/state.h"
#include "service/store/executor.h"
#include "service/store/host_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The size of a page. A page must not take long, and must not hold many specs in memory. */
#define PAGE_JOBS 1000
/* The interval of log lines while rows are read. */
#define PROGRESS_MS 2000

static status_t load_attempt(struct controller *c, const struct store_live_job *live, struct err *e) {
    Trainyard__V1__AttemptStart start = TRAINYARD__V1__ATTEMPT_START__INIT;
    start.job = live->job.id;
    start.attempt = live->job.attempt;
    start.world_size = live->ranks;
    start.resume_directory = (char *)(uintptr_t)live->resume_directory;
    start.resume_checkpoint = live->from_checkpoint;
    start.forked = live->forked;
    start.init_directory = (char *)(uintptr_t)live->init_directory;
    const struct start_order_spec spec = { live->job.spec, live->job.spec_bytes, &c->place };
    rendezvous_expect(c->rendezvous, live->job.id, live->job.attempt, live->ranks);
    return start_orders_put(&c->start_orders, &start, &spec, live->executors, e);
}

/* The rows of host faults of a page, and how many of them were used. They are in the order of the jobs, so that one
 * pass over them serves all jobs. */
struct faults_left {
    struct store_host_faults all;
    size_t avoided, unreadable; /* the number of used rows */
    struct scheduler_avoided of_job[STORE_MAX_AVOIDED_HOSTS];
};

static void faults_take(struct faults_left *f, struct scheduler_job_row *row) {
    row->avoided = f->of_job;
    for (; f->avoided < f->all.n_avoided && f->all.avoided[f->avoided].job <= row->job; f->avoided++) {
        const struct store_avoided_host *a = &f->all.avoided[f->avoided];
        if (a->job == row->job && row->n_avoided < STORE_MAX_AVOIDED_HOSTS)
            f->of_job[row->n_avoided++] = (struct scheduler_avoided){ .executor = a->executor,
                                                                      .cause = (enum rank_end_cause)a->cause,
                                                                      .left_ms = SCHEDULER_AVOID_MS - a->age_ms,
                                                                      .why = a->reason };
    }
    for (; f->unreadable < f->all.n_unreadable && f->all.unreadable[f->unreadable].job <= row->job; f->unreadable++)
        if (f->all.unreadable[f->unreadable].job == row->job)
            row->unreadable_ms = f->all.unreadable[f->unreadable].age_ms + 1;
}

static status_t load_job(struct controller *c, const struct store_live_job *live, struct faults_left *faults,
                         struct err *e) {
    CLEANUP(freep) bool *started = alloc_zeroed((size_t)live->ranks + 1, sizeof *started);
    struct scheduler_job_row row = scheduler_row_of(&live->job);
    row.final_committed = live->final_committed;
    row.ranks = live->ranks;
    faults_take(faults, &row);
    if (live->attempt_open) {
        for (int r = 0; r < live->ranks; r++)
            started[r] = live->pids[r] != 0;
        row.placement = live->executors;
        row.started = started;
        row.committed_step = live->committed_step;
        TRY(load_attempt(c, live, e));
    }
    scheduler_load(c->scheduler, &row, clock_mono_ms());
    return ST_OK;
}

struct scheduler_job_row scheduler_row_of(const struct store_job *job) {
    struct scheduler_job_row row = { .job = job->id,
                                     .state = row_state_read(job->state),
                                     .priority = job->priority,
                                     .world_size = job->world_size,
                                     .max_world_size = job->max_world_size,
                                     .stops_at_step = job->stops_at_step,
                                     .slot = strcmp(job->accelerator, "cuda") == 0 ? SCHEDULER_SLOT_CUDA
                                                                                   : SCHEDULER_SLOT_CPU,
                                     .needs = job->needs,
                                     .max_restarts = job->max_restarts,
                                     .restarts = job->restarts,
                                     .attempt = job->attempt,
                                     .no_final_checkpoint = job->steps == 0,
                                     .committed_step = -1 };
    snprintf(row.queue, sizeof row.queue, "%s", job->queue ? job->queue : "");
    snprintf(row.user, sizeof row.user, "%s", job->user ? job->user : "");
    return row;
}

struct scheduler_drain scheduler_drain_of(const struct store_executor *row) {
    return (struct scheduler_drain){ .drained = row->drain_time_us != 0,
                                     .now = row->drain_now,
                                     .reason = row->drain_reason };
}

struct recovery {
    int64_t executors, jobs, begun_ms, next_line_ms;
};

static void log_progress(struct controller *c, struct recovery *r, const char *name) {
    int64_t now_ms = clock_mono_ms();
    atomic_fetch_add(&c->beats, 1);
    if (now_ms < r->next_line_ms)
        return;
    r->next_line_ms = now_ms + PROGRESS_MS;
    log_event(LOG_INFO, name, "executors", LOG_INT(r->executors), "jobs", LOG_INT(r->jobs), "ms",
              LOG_INT(now_ms - r->begun_ms), NULL);
}

static status_t load_executors(struct controller *c, struct recovery *r, struct err *e) {
    char after[SCHEDULER_EXECUTOR_ID_BYTES] = "";
    size_t n;
    do {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_executor *rows;
        TRY(store_executor_live(c->store, m, after, LIMIT_PAGE_SIZE, &rows, &n, e));
        for (size_t i = 0; i < n; i++) {
            const struct scheduler_drain drain = scheduler_drain_of(&rows[i]);
            scheduler_load_executor(c->scheduler, rows[i].id, rows[i].state == STORE_EXECUTOR_ATTACHED, &drain,
                                    clock_mono_ms());
        }
        if (n > 0)
            snprintf(after, sizeof after, "%s", rows[n - 1].id);
        r->executors += (int64_t)n;
        log_progress(c, r, "recovering");
    } while (n == LIMIT_PAGE_SIZE);
    return ST_OK;
}

static status_t load_jobs(struct controller *c, struct recovery *r, struct err *e) {
    int64_t after = 0;
    size_t n;
    do {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_live_job *jobs;
        TRY(store_job_live(c->store, m, after, PAGE_JOBS, &jobs, &n, e));
        struct faults_left faults = { 0 };
        if (n > 0)
            TRY(store_host_faults(c->store, m, jobs[0].job.id, jobs[n - 1].job.id, SCHEDULER_AVOID_MS, &faults.all, e));
        for (size_t i = 0; i < n; i++)
            TRY(load_job(c, &jobs[i], &faults, e));
        if (n > 0)
            after = jobs[n - 1].job.id;
        r->jobs += (int64_t)n;
        log_progress(c, r, "recovering");
    } while (n == PAGE_JOBS && !leadership_over(c));
    return ST_OK;
}

status_t recover(struct controller *c, struct err *e) {
    struct recovery r = { .begun_ms = clock_mono_ms(), .next_line_ms = deadline_in(PROGRESS_MS) };
    scheduler_free(c->scheduler);
    start_orders_done(&c->start_orders);
    c->scheduler = scheduler_new(r.begun_ms);
    if (c->checkpoint_wait_ms > 0)
        scheduler_set_checkpoint_wait(c->scheduler, c->checkpoint_wait_ms);
    if (c->elastic_settle_ms > 0)
        scheduler_set_elastic_settle(c->scheduler, c->elastic_settle_ms);
    TRY(queues_load(c, e));
    TRY(load_executors(c, &r, e));
    TRY(load_jobs(c, &r, e));
    if (leadership_over(c))
        return err_set(e, ST_CANCELLED, "the controller is stopping");
    r.next_line_ms = 0;
    log_progress(c, &r, "recovered");
    return ST_OK;
}
