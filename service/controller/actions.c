/* Runs the actions that follow from an event. actions_run passes the event to scheduler_step and handles the resulting
 * actions one by one, in order:
 *
 *   rows     attempt_create, job_state, record_all: each is one transaction, which write_retry repeats until PostgreSQL
 *            takes it or refuses it
 *   orders   send_start, send_rendezvous, send_order: one message to one executor through dispatch
 *   others   the awaited records of a rank, the reply to a client, the end of a job
 *
 * The scheduler's state has already changed when its actions run. If the store refuses a job's move, memory and rows
 * differ, and this controller gives up leadership (check_move). When leadership is over, the remaining actions are
 * dropped, because the next leader reads the rows. Rows of started ranks are collected and written once per tick, or
 * before a job's state changes. */
#include "api/spec/data_uri.h"
#include "base/alloc.h"
#include "base/log.h"
#include "service/controller/row_state.h"
#include "service/controller/state.h"
#include "service/store/attempt.h"
#include "service/store/checkpoint.h"
#include "service/store/event.h"
#include "service/store/executor.h"
#include "service/store/host_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request_id actions_request_id(struct controller *c, const struct loop_request *request) {
    struct request_id id;
    if (request && loop_request_id(request)[0])
        snprintf(id.text, sizeof id.text, "%s", loop_request_id(request));
    else
        snprintf(id.text, sizeof id.text, "controller-%lld-%lld", (long long)c->own_epoch, (long long)++c->requests);
    return id;
}

/* ---- rows of started ranks ---- */

void rank_starts_add(struct controller *c, const struct store_rank_start *start) {
    if (c->starts.n == STORE_MAX_RANK_STARTS)
        rank_starts_write(c);
    char *executor = c->starts.executors[c->starts.n];
    snprintf(executor, sizeof c->starts.executors[0], "%s", start->executor);
    c->starts.items[c->starts.n] = *start;
    c->starts.items[c->starts.n++].executor = executor;
}

void rank_starts_write(struct controller *c) {
    struct err e = { "" };
    if (c->starts.n > 0)
        (void)WRITE_REPEATED(c, store_rank_starts(c->store, c->own_epoch, c->starts.items, c->starts.n, &e), &e);
    c->starts.n = 0;
}

/* A refused change of a job's state means that memory and rows differ. Only a new start can decide which one is right,
 * because it reads the rows again. */
static void check_move(struct controller *c, enum write_result after, const struct scheduler_action *a,
                       const struct err *e) {
    if (after != WRITE_REFUSED || leadership_over(c))
        return;
    char why[600];
    snprintf(why, sizeof why, "job %lld: %s", (long long)a->job, e->msg);
    leadership_depose(c, why);
}

/* The job has ended: drops everything that is kept for it in memory. */
static void job_forget(struct controller *c, int64_t job) {
    start_orders_forget(&c->start_orders, job);
    progress_forget(c->progress, job);
    checkpoint_gc_request(c->checkpoint_gc, job);
    job_watchers_notify(c->job_watchers, job);
    sweeps_job_ended(c->sweeps);
}

/* The store has made the job FAILED and has created no attempt. The attempt has no start order, so that the actions of
 * kind ACT_SEND_START that follow in the list send nothing. */
static void attempt_refused(struct controller *c, const struct scheduler_action *a, const char *why) {
    log_event(LOG_INFO, "job_state", "job", LOG_INT(a->job), "attempt", LOG_INT(a->attempt), "from",
              LOG_STR(job_state_name(a->from)), "to", LOG_STR(job_state_name(JOB_STATE_FAILED)), "reason", LOG_STR(why),
              NULL);
    scheduler_refused(c->scheduler, a->job, a->attempt);
    job_forget(c, a->job);
}

/* secrets: NULL if they could not be read; the order is then refused when it would be sent. */
static void attempt_start(struct controller *c, const struct scheduler_action *a,
                          const struct store_attempt_start *start, const char *const *executors,
                          struct attempt_secrets *secrets) {
    Trainyard__V1__AttemptStart m = TRAINYARD__V1__ATTEMPT_START__INIT;
    m.job = a->job;
    m.attempt = a->attempt;
    m.world_size = a->world_size;
    m.resume_directory = (char *)(uintptr_t)start->directory;
    m.resume_checkpoint = start->from_checkpoint;
    m.forked = start->forked;
    m.init_directory = (char *)(uintptr_t)start->init_directory;
    const struct start_order_spec spec = { start->spec, start->spec_bytes, &c->place };
    struct err e = { "" };
    rendezvous_expect(c->rendezvous, a->job, a->attempt, a->world_size);
    if (start_orders_put(&c->start_orders, &m, &spec, executors, &e) != ST_OK)
        log_event(LOG_ERROR, "attempt_not_sent", "job", LOG_INT(a->job), "reason", LOG_STR(e.msg), NULL);
    if (secrets)
        start_orders_take_secrets(&c->start_orders, a->job, a->attempt, secrets);
    log_event(LOG_INFO, "attempt_created", "job", LOG_INT(a->job), "attempt", LOG_INT(a->attempt), "ranks",
              LOG_INT(a->world_size), "from_step", LOG_INT(start->from_step), NULL);
    job_watchers_notify(c->job_watchers, a->job);
}

static void attempt_create(struct controller *c, const struct scheduler_action *a) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct request_id id = actions_request_id(c, NULL);
    CLEANUP(freep) const char **executors = alloc_zeroed((size_t)a->world_size, sizeof *executors);
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
    struct attempt_secrets secrets = { 0 };
    struct err e = { "" }, refusal = { "" }, lacks_key = { "" };
    if (a->needs & SCHEDULER_FEATURE_SECRETS)
        secret_orders_read(c, a->job, &secrets, &refusal, &lacks_key);
    if (refusal.msg[0])
        row.refuse = refusal.msg;
    enum write_result after = WRITE_REPEATED(c, store_attempt_create(c->store, m, c->own_epoch, &row, &start, &e), &e);
    check_move(c, after, a, &e);
    if (after == WRITE_DONE && start.queued_seconds >= 0)
        histogram_add(&c->times.queued, (int64_t)(start.queued_seconds * 1e9));
    if (after == WRITE_DONE && start.refused[0])
        attempt_refused(c, a, start.refused);
    else if (after == WRITE_DONE)
        attempt_start(c, a, &start, executors, lacks_key.msg[0] ? NULL : &secrets);
    attempt_secrets_done(&secrets);
}

/* Only the move that a client requested is stored under the id of the request, not the moves that follow from it. */
static bool is_requested(enum job_cause cause) {
    return cause == JOB_CAUSE_CANCEL_ASKED || cause == JOB_CAUSE_PAUSE_ASKED || cause == JOB_CAUSE_RESUME_ASKED;
}

static void job_move(struct controller *c, const struct scheduler_action *a, const struct loop_request *request) {
    struct request_id id = actions_request_id(c, is_requested(a->cause) ? request : NULL);
    struct store_job_move move = { .request_id = id.text,
                                   .job = a->job,
                                   .attempt = a->attempt,
                                   .from = row_state_write(a->from),
                                   .to = row_state_write(a->to),
                                   .restarts = a->restarts,
                                   .reason = a->text };
    struct err e = { "" };
    enum write_result after = WRITE_REPEATED(c, store_job_move(c->store, c->own_epoch, &move, NULL, &e), &e);
    check_move(c, after, a, &e);
}

static void job_state(struct controller *c, const struct scheduler_action *a, const struct loop_request *request) {
    rank_starts_write(c);                  /* a reader that sees the job RUNNING also sees its processes */
    if (a->cause != JOB_CAUSE_RETRY_ASKED) /* a retry moves the row before the scheduler's state changes: loop.c */
        job_move(c, a, request);
    if (a->to == JOB_STATE_PAUSED) { /* the pause may be long, and the next attempt creates both again */
        start_orders_forget(&c->start_orders, a->job);
        progress_forget(c->progress, a->job);
    }
    log_event(LOG_INFO, "job_state", "job", LOG_INT(a->job), "attempt", LOG_INT(a->attempt), "from",
              LOG_STR(job_state_name(a->from)), "to", LOG_STR(job_state_name(a->to)), "reason", LOG_STR(a->text), NULL);
    job_watchers_notify(c->job_watchers, a->job);
    notifier_wake(c->notifier);
}

static status_t host_fault(struct controller *c, const struct scheduler_action *a, const char *request, struct err *e) {
    const struct store_host_fault fault = { .request_id = request,
                                            .job = a->job,
                                            .attempt = a->attempt,
                                            .executor = a->executor,
                                            .cause = a->blamed,
                                            .reason = a->text,
                                            .checkpoint = a->blamed == RANK_END_CHECKPOINT_UNREADABLE,
                                            .window_ms = SCHEDULER_AVOID_MS };
    return store_host_fault(c->store, c->own_epoch, &fault, e);
}

/* Writes whose refusal has no consequences: for example, the end is already stored, or the checkpoint is gone. */
static status_t record(struct controller *c, const struct scheduler_action *a, const char *request, struct err *e) {
    switch (a->kind) {
    case ACT_ATTEMPT_END: return store_attempt_end(c->store, c->own_epoch, a->job, a->attempt, a->restarts, a->text, e);
    case ACT_CHECKPOINT_CORRUPT:
        return store_checkpoint_corrupt(c->store, c->own_epoch, a->job, a->attempt, a->text, e);
    case ACT_CHECKPOINT_MISSING:
        return store_checkpoint_missing(c->store, c->own_epoch, a->job, a->attempt, a->text, e);
    case ACT_HOST_FAULT: return host_fault(c, a, request, e);
    case ACT_NOTE:
        return store_event_add(c->store, c->own_epoch, request, a->job, a->attempt, a->note, a->text, NULL, e);
    case ACT_WAITING: return store_job_waiting(c->store, c->own_epoch, request, a->job, a->attempt, a->text, e);
    case ACT_EXECUTOR_LOST: return store_executor_lost(c->store, c->own_epoch, a->executor, a->text, e);
    default: return ST_OK;
    }
}

static void record_all(struct controller *c, const struct scheduler_action *a) {
    struct request_id id = actions_request_id(c, NULL);
    struct err e = { "" };
    enum write_result after = WRITE_REPEATED(c, record(c, a, id.text, &e), &e);
    if (after == WRITE_REFUSED && !leadership_over(c))
        log_event(LOG_WARN, "write_refused", "job", LOG_INT(a->job), "reason", LOG_STR(e.msg), NULL);
    if (a->kind == ACT_ATTEMPT_END) {
        ingest_forget(c->ingest, a->job);
        rendezvous_forget(c->rendezvous, a->job);
    }
    if (a->kind == ACT_HOST_FAULT)
        log_event(LOG_WARN, "host_fault", "job", LOG_INT(a->job), "attempt", LOG_INT(a->attempt), "executor",
                  LOG_STR(a->executor), "reason", LOG_STR(a->text), NULL);
    if (a->kind == ACT_EXECUTOR_LOST)
        log_event(LOG_WARN, "executor_lost", "executor", LOG_STR(a->executor), "reason", LOG_STR(a->text), NULL);
    if (a->job)
        job_watchers_notify(c->job_watchers, a->job);
}

static void order_refused(struct controller *c, const struct scheduler_action *a, const char *reason) {
    struct refused_orders *l = &c->refused_orders;
    l->items = alloc_resize(l->items, l->n + 1, sizeof *l->items);
    struct refused_order *o = &l->items[l->n++];
    *o = (struct refused_order){ .job = a->job, .attempt = a->attempt };
    memcpy(o->executor, a->executor, sizeof o->executor);
    snprintf(o->reason, sizeof o->reason, "%s", reason);
}

struct start_peers {
    struct dispatch_peers found;
    Trainyard__V1__CachePeer messages[DISPATCH_PEERS_MAX], *list[DISPATCH_PEERS_MAX];
};

static bool copies_data(const Trainyard__V1__AttemptStart *start) {
    size_t n;
    free(data_uris_remote(start->spec, &n));
    return n > 0 || strncmp(start->resume_directory, "s3://", 5) == 0 ||
           strncmp(start->init_directory, "s3://", 5) == 0;
}

/* Fills in the caches of other hosts, if there are data to copy. */
static void start_add_peers(struct controller *c, const struct start_order *order, const char *executor,
                            struct start_peers *peers, Trainyard__V1__AttemptStart *start) {
    if (!copies_data(start))
        return;
    dispatch_find_peers(c->dispatch, executor, order->executors, start->world_size, &peers->found);
    for (int i = 0; i < peers->found.n; i++) {
        trainyard__v1__cache_peer__init(&peers->messages[i]);
        peers->messages[i].url = peers->found.items[i].url;
        peers->messages[i].token = peers->found.items[i].token;
        peers->messages[i].key = peers->found.items[i].key;
        peers->list[i] = &peers->messages[i];
    }
    start->cache_peers = peers->list;
    start->n_cache_peers = (size_t)peers->found.n;
    start->n_cache_gang = peers->found.n_gang;
    start->cache_url = peers->found.own;
}

static void send_start(struct controller *c, const struct scheduler_action *a, Trainyard__V1__ControllerMessage *m) {
    const struct start_order *order = start_orders_find(&c->start_orders, a->job, a->attempt);
    if (!order)
        return;
    CLEANUP(freep) int32_t *ranks = alloc_zeroed((size_t)order->start->world_size, sizeof *ranks);
    Trainyard__V1__AttemptStart start = *order->start;
    start.n_ranks = start_order_ranks(order, a->executor, ranks);
    start.ranks = ranks;
    struct start_peers peers;
    start_add_peers(c, order, a->executor, &peers, &start);
    struct err refusal = { "" };
    if (!secret_orders_open(c, order, &start, &refusal)) {
        if (!leadership_over(c))
            order_refused(c, a, refusal.msg);
        return;
    }
    m->message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START;
    m->start = &start;
    dispatch_send(c->dispatch, a->executor, m);
    attempt_secrets_wipe(&start);
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

void send_stop_step(struct controller *c, const struct start_order *order, const char *executor) {
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    Trainyard__V1__AttemptStopStep of = TRAINYARD__V1__ATTEMPT_STOP_STEP__INIT;
    Trainyard__V1__StopStep step = TRAINYARD__V1__STOP_STEP__INIT;
    if (!order || !order->has_stop_step)
        return;
    step.step = order->stop_step;
    of.job = order->job;
    of.attempt = order->start->attempt;
    of.stop_step = &step;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP_STEP;
    m.stop_step = &of;
    dispatch_send(c->dispatch, executor, &m);
}

/* Sends a short order. If the executor is not attached, the order is lost, and the next attach reconciles. */
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
        stop.collect_stacks = a->collect_stacks;
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
    if (a->kind == ACT_SEND_STOP)
        send_stop_step(c, start_orders_find(&c->start_orders, a->job, a->attempt), a->executor);
}

static void act(struct controller *c, const struct scheduler_action *a, struct loop_request *request) {
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    switch (a->kind) {
    case ACT_ATTEMPT_CREATE: attempt_create(c, a); break;
    case ACT_JOB_STATE: job_state(c, a, request); break;
    case ACT_ATTEMPT_END:
    case ACT_CHECKPOINT_CORRUPT:
    case ACT_CHECKPOINT_MISSING:
    case ACT_HOST_FAULT:
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
        if (request)
            loop_request_reply(request, a->status, a->reason, a->text);
        break;
    case ACT_RESTART: /* an agent may report a cause that this version does not know */
        atomic_fetch_add(&c->restarts[(unsigned)a->blamed < RANK_END_CAUSES ? a->blamed : RANK_END_UNKNOWN], 1);
        break;
    case ACT_FORGET: job_forget(c, a->job); break;
    }
}

static void step_and_act(struct controller *c, const struct scheduler_event *ev, struct loop_request *request) {
    struct scheduler_event event = *ev;
    event.more = c->more && ev->kind != EV_PLACE;
    scheduler_step(c->scheduler, &event, clock_mono_ms(), &c->actions);
    for (size_t i = 0; i < c->actions.n && !leadership_over(c); i++) {
        act(c, &c->actions.items[i], request);
        atomic_fetch_add(&c->actions_done, 1);
        atomic_fetch_add(&c->beats, 1);
    }
    scheduler_actions_clear(&c->actions);
    atomic_fetch_add(&c->events, 1);
}

void actions_run_request(struct controller *c, const struct scheduler_event *ev, struct loop_request *request) {
    step_and_act(c, ev, request);
    while (c->refused_orders.n > 0 && !leadership_over(c)) {
        const struct refused_order o = c->refused_orders.items[--c->refused_orders.n];
        const struct scheduler_event refused = {
            .kind = EV_PART_REFUSED, .job = o.job, .attempt = o.attempt, .executor = o.executor, .reason = o.reason
        };
        step_and_act(c, &refused, NULL);
    }
    c->refused_orders.n = 0;
    if (request && leadership_over(c)) /* the action that replies may not have run */
        loop_request_reply(request, ST_UNAVAILABLE, NULL, "this controller no longer leads");
}

void actions_run(struct controller *c, const struct scheduler_event *ev) { actions_run_request(c, ev, NULL); }
