#include "base/log.h"
#include "service/controller/row_state.h"
#include "service/controller/state.h"
#include "service/store/attempt.h"
#include "service/store/checkpoint.h"
#include "service/store/event.h"
#include "service/store/executor.h"

#include <stdio.h>
#include <stdlib.h>

/* Between two tries of what finds no memory. */
#define MEMORY_PAUSE_MS 50

struct request_id act_request(struct controller *c, const struct ask *ask) {
    struct request_id id;
    if (ask && ask_request_id(ask)[0])
        snprintf(id.text, sizeof id.text, "%s", ask_request_id(ask));
    else
        snprintf(id.text, sizeof id.text, "controller-%lld-%lld", (long long)c->own_epoch, (long long)++c->requests);
    return id;
}

/* A refused change of a job's state means that memory and rows differ: only a new start can tell which is right. */
static void check_move(struct controller *c, enum write_after after, const struct scheduler_action *a,
                       const struct err *e) {
    if (after != WRITE_REFUSED || lead_over(c))
        return;
    char why[600];
    snprintf(why, sizeof why, "job %lld: %s", (long long)a->job, e->msg);
    lead_depose(c, why);
}

/* The job has ended: what is kept for it goes. */
static void job_forget(struct controller *c, int64_t job) {
    launch_forget(&c->launches, job);
    progress_forget(c->progress, job);
    retire_soon(c->retire, job);
    wake_now(c->wakes, job);
}

/* The store has made the job FAILED: no order of this attempt goes out, since no launch is there for it. */
static void attempt_refused(struct controller *c, const struct scheduler_action *a, const char *why) {
    log_event(LOG_INFO, "job_state", "job", LOG_INT(a->job), "attempt", LOG_INT(a->attempt), "from",
              LOG_STR(job_state_name(a->from)), "to", LOG_STR(job_state_name(JOB_STATE_FAILED)), "reason", LOG_STR(why),
              NULL);
    scheduler_refused(c->scheduler, a->job, a->attempt);
    job_forget(c, a->job);
}

static void attempt_launch(struct controller *c, const struct scheduler_action *a,
                           const struct store_attempt_start *start, const struct store_job *job,
                           const char *const *executors) {
    struct launch_order order = { .job = a->job,
                                  .attempt = a->attempt,
                                  .world_size = a->world_size,
                                  .executors = executors,
                                  .spec = job->spec,
                                  .spec_bytes = job->spec_bytes,
                                  .checkpoints = c->checkpoints,
                                  .resume_directory = start->directory,
                                  .resume_checkpoint = start->from_checkpoint,
                                  .forked = start->forked,
                                  .init_directory = start->init_directory };
    struct err e = { "" };
    status_t st = launch_put(&c->launches, &order, &e);
    if (st == ST_OK)
        st = rendezvous_expect(c->rendezvous, a->job, a->attempt, a->world_size, &e);
    if (st != ST_OK)
        log_event(LOG_ERROR, "attempt_not_sent", "job", LOG_INT(a->job), "reason", LOG_STR(e.msg), NULL);
    log_event(LOG_INFO, "attempt_created", "job", LOG_INT(a->job), "attempt", LOG_INT(a->attempt), "ranks",
              LOG_INT(a->world_size), "from_step", LOG_INT(start->from_step), NULL);
    wake_now(c->wakes, a->job);
}

static void attempt_create(struct controller *c, const struct scheduler_action *a) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct request_id id = act_request(c, NULL);
    const char **executors;
    while (!(executors = calloc((size_t)a->world_size, sizeof *executors)) && !lead_over(c))
        lead_pause(c, MEMORY_PAUSE_MS);
    if (!executors)
        return;
    for (int r = 0; r < a->world_size; r++)
        executors[r] = a->placement[r];
    struct store_attempt_new row = { .request_id = id.text,
                                     .job = a->job,
                                     .attempt = a->attempt,
                                     .from = row_state_write(a->from),
                                     .world_size = a->world_size,
                                     .executors = executors,
                                     .reason = "" };
    struct store_attempt_start start = { 0 };
    struct store_job job = { 0 };
    enum write_after after;
    struct err e = { "" };
    int tries = 0;
    do {
        status_t st = store_attempt_create(c->store, m, c->own_epoch, &row, &start, &e);
        if (st == ST_OK)
            st = store_job_get(c->store, m, a->job, &job, &e);
        after = write_judge(c, st, &e, &tries);
    } while (after == WRITE_AGAIN);
    check_move(c, after, a, &e);
    if (after == WRITE_DONE && start.refused[0])
        attempt_refused(c, a, start.refused);
    else if (after == WRITE_DONE)
        attempt_launch(c, a, &start, &job, executors);
    free(executors);
}

/* The first move that a question asks for has its id. */
static bool is_asked(enum job_cause cause) {
    return cause == JOB_CAUSE_CANCEL_ASKED || cause == JOB_CAUSE_PAUSE_ASKED || cause == JOB_CAUSE_RESUME_ASKED;
}

static void job_move(struct controller *c, const struct scheduler_action *a, const struct ask *ask) {
    struct request_id id = act_request(c, is_asked(a->cause) ? ask : NULL);
    struct store_job_move move = { .request_id = id.text,
                                   .job = a->job,
                                   .attempt = a->attempt,
                                   .from = row_state_write(a->from),
                                   .to = row_state_write(a->to),
                                   .restarts = a->restarts,
                                   .reason = a->text };
    enum write_after after;
    struct err e = { "" };
    int tries = 0;
    do
        after = write_judge(c, store_job_move(c->store, c->own_epoch, &move, NULL, &e), &e, &tries);
    while (after == WRITE_AGAIN);
    check_move(c, after, a, &e);
}

static void job_state(struct controller *c, const struct scheduler_action *a, const struct ask *ask) {
    tell_starts(c);                        /* whoever sees the job RUNNING sees its processes */
    if (a->cause != JOB_CAUSE_RETRY_ASKED) /* a retry's row has moved before the scheduler was told: loop.c */
        job_move(c, a, ask);
    if (a->to == JOB_STATE_PAUSED) { /* for long, perhaps: the next attempt makes them anew */
        launch_forget(&c->launches, a->job);
        progress_forget(c->progress, a->job);
    }
    log_event(LOG_INFO, "job_state", "job", LOG_INT(a->job), "attempt", LOG_INT(a->attempt), "from",
              LOG_STR(job_state_name(a->from)), "to", LOG_STR(job_state_name(a->to)), "reason", LOG_STR(a->text), NULL);
    wake_now(c->wakes, a->job);
}

/* Writes whose refusal changes nothing: an end that is told already, a checkpoint that is gone. */
static status_t record(struct controller *c, const struct scheduler_action *a, const char *request, struct err *e) {
    switch (a->kind) {
    case ACT_ATTEMPT_END: return store_attempt_end(c->store, c->own_epoch, a->job, a->attempt, a->restarts, a->text, e);
    case ACT_CHECKPOINT_CORRUPT:
        return store_checkpoint_corrupt(c->store, c->own_epoch, a->job, a->attempt, a->text, e);
    case ACT_NOTE:
        return store_event_add(c->store, c->own_epoch, request, a->job, a->attempt, a->note, a->text, NULL, e);
    case ACT_WAITING: return store_job_waiting(c->store, c->own_epoch, request, a->job, a->attempt, a->text, e);
    case ACT_EXECUTOR_LOST: return store_executor_lost(c->store, c->own_epoch, a->executor, a->text, e);
    default: return ST_OK;
    }
}

static void record_all(struct controller *c, const struct scheduler_action *a) {
    struct request_id id = act_request(c, NULL);
    struct err e = { "" };
    int tries = 0;
    enum write_after after;
    do
        after = write_judge(c, record(c, a, id.text, &e), &e, &tries);
    while (after == WRITE_AGAIN);
    if (after == WRITE_REFUSED && !lead_over(c))
        log_event(LOG_WARN, "write_refused", "job", LOG_INT(a->job), "reason", LOG_STR(e.msg), NULL);
    if (a->kind == ACT_ATTEMPT_END) {
        ingest_forget(c->ingest, a->job);
        rendezvous_forget(c->rendezvous, a->job);
    }
    if (a->kind == ACT_EXECUTOR_LOST)
        log_event(LOG_WARN, "executor_lost", "executor", LOG_STR(a->executor), "reason", LOG_STR(a->text), NULL);
    if (a->job)
        wake_now(c->wakes, a->job);
}

static void send_start(struct controller *c, const struct scheduler_action *a, Trainyard__V1__ControllerMessage *m) {
    const struct launch *launch = launch_find(&c->launches, a->job, a->attempt);
    int32_t *ranks = launch ? calloc((size_t)launch->world_size, sizeof *ranks) : NULL;
    if (!ranks)
        return;
    Trainyard__V1__StartAttempt start = TRAINYARD__V1__START_ATTEMPT__INIT;
    start.job = a->job;
    start.attempt = a->attempt;
    start.world_size = launch->world_size;
    start.n_ranks = launch_ranks(launch, a->executor, ranks);
    start.ranks = ranks;
    start.spec = launch->spec;
    start.checkpoint_directory = launch->checkpoint_directory;
    start.resume_directory = launch->resume_directory;
    start.resume_checkpoint = launch->resume_checkpoint;
    start.init_directory = launch->init_directory;
    start.forked = launch->forked;
    m->message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START;
    m->start = &start;
    dispatch_send(c->dispatch, a->executor, m);
    free(ranks);
}

static void send_rendezvous(struct controller *c, const struct scheduler_action *a,
                            Trainyard__V1__ControllerMessage *m) {
    Trainyard__V1__Rendezvous addresses = TRAINYARD__V1__RENDEZVOUS__INIT;
    addresses.addresses = rendezvous_addresses(c->rendezvous, a->job, a->attempt, &addresses.n_addresses);
    if (!addresses.addresses)
        return;
    Trainyard__V1__AttemptRendezvous all = TRAINYARD__V1__ATTEMPT_RENDEZVOUS__INIT;
    all.job = a->job;
    all.attempt = a->attempt;
    all.rendezvous = &addresses;
    m->message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_RENDEZVOUS;
    m->rendezvous = &all;
    dispatch_send(c->dispatch, a->executor, m);
}

/* The short orders. One that is not attached loses them: its next attach reconciles. */
static void send_order(struct controller *c, const struct scheduler_action *a, Trainyard__V1__ControllerMessage *m) {
    Trainyard__V1__StopAttempt stop = TRAINYARD__V1__STOP_ATTEMPT__INIT;
    Trainyard__V1__AttemptAcknowledged acknowledged = TRAINYARD__V1__ATTEMPT_ACKNOWLEDGED__INIT;
    Trainyard__V1__CheckpointCommitted checkpoint = TRAINYARD__V1__CHECKPOINT_COMMITTED__INIT;
    Trainyard__V1__AttemptCommitted committed = TRAINYARD__V1__ATTEMPT_COMMITTED__INIT;
    if (a->kind == ACT_SEND_STOP) {
        stop.job = a->job;
        stop.attempt = a->attempt;
        stop.grace_ms = a->grace_ms;
        stop.reason = (char *)a->text;
        m->message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP;
        m->stop = &stop;
    } else if (a->kind == ACT_SEND_ACKNOWLEDGE) {
        acknowledged.job = a->job;
        acknowledged.attempt = a->attempt;
        m->message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED;
        m->acknowledged = &acknowledged;
    } else {
        checkpoint.step = a->step;
        committed.job = a->job;
        committed.attempt = a->attempt;
        committed.checkpoint = &checkpoint;
        m->message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_COMMITTED;
        m->committed = &committed;
    }
    dispatch_send(c->dispatch, a->executor, m);
}

static void act(struct controller *c, const struct scheduler_action *a, struct ask *ask) {
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    switch (a->kind) {
    case ACT_ATTEMPT_CREATE: attempt_create(c, a); break;
    case ACT_JOB_STATE: job_state(c, a, ask); break;
    case ACT_ATTEMPT_END:
    case ACT_CHECKPOINT_CORRUPT:
    case ACT_NOTE:
    case ACT_WAITING: record_all(c, a); break;
    case ACT_EXECUTOR_LOST:
        dispatch_close(c->dispatch, a->executor, ST_UNAVAILABLE, "the executor's lease is over");
        record_all(c, a);
        break;
    case ACT_SEND_START: send_start(c, a, &m); break;
    case ACT_SEND_RENDEZVOUS: send_rendezvous(c, a, &m); break;
    case ACT_SEND_STOP:
    case ACT_SEND_ACKNOWLEDGE:
    case ACT_SEND_COMMITTED: send_order(c, a, &m); break;
    case ACT_AWAIT_STORED: ingest_await(c->ingest, a->job, a->attempt, a->rank, a->sequence); break;
    case ACT_REPLY:
        if (ask)
            ask_answer(ask, a->status, a->reason, a->text);
        break;
    case ACT_FORGET: job_forget(c, a->job); break;
    }
}

/* Told again until there is memory for it; false: this controller leads no more. As with a database that is away, the
 * next tick is late, and leases are longer by that. */
static bool step(struct controller *c, const struct scheduler_event *ev) {
    struct err e = { "" };
    for (int tries = 0; scheduler_step(c->scheduler, ev, clock_mono_ms(), &c->actions, &e) != ST_OK; tries++) {
        if (tries == 0)
            log_event(LOG_WARN, "event_waits", "job", LOG_INT(ev->job), "reason", LOG_STR(e.msg), NULL);
        lead_pause(c, MEMORY_PAUSE_MS);
        if (lead_over(c))
            return false;
    }
    return true;
}

void act_ask(struct controller *c, const struct scheduler_event *ev, struct ask *ask) {
    if (!step(c, ev)) {
        if (ask)
            ask_answer(ask, ST_UNAVAILABLE, NULL, "this controller leads no more");
        return;
    }
    for (size_t i = 0; i < c->actions.n && !lead_over(c); i++) {
        act(c, &c->actions.items[i], ask);
        atomic_fetch_add(&c->actions_done, 1);
    }
    scheduler_actions_clear(&c->actions);
    atomic_fetch_add(&c->events, 1);
}

void act_on(struct controller *c, const struct scheduler_event *ev) { act_ask(c, ev, NULL); }
