#include "service/controller/controller.h"

#include "base/log.h"
#include "service/controller/state.h"
#include "service/store/checkpoint.h"
#include "service/store/job_delete.h"
#include "service/store/leader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_CONNECTIONS 16

static void on_stored(void *ctx, int64_t job, int attempt, int rank, int64_t sequence) {
    struct controller *c = ctx;
    struct inbox_item item = {
        .kind = INBOX_STORED, .job = job, .attempt = attempt, .rank = rank, .sequence = sequence
    };
    if (inbox_put(c->inbox, &item, true, NULL) != ST_OK)
        controller_submitted_perhaps(c);
}

static void on_checkpoint(void *ctx, int64_t job, int attempt, int64_t step, bool final) {
    struct controller *c = ctx;
    struct inbox_item item = { .kind = INBOX_COMMITTED, .job = job, .attempt = attempt, .step = step, .final = final };
    status_ignore(inbox_put(c->inbox, &item, true, NULL));
    wake_now(c->wakes, job);
    retire_soon(c->retire, job);
}

static void on_changed(void *ctx, int64_t job) { wake_soon(((struct controller *)ctx)->wakes, job); }

static void on_metric(void *ctx, int64_t job, int attempt, int64_t step, const char *name, double value) {
    progress_put(((struct controller *)ctx)->progress, job, attempt, step, name, value);
}

static status_t build(struct controller *c, const struct controller_options *o, struct err *e) {
    c->database = strdup(o->database);
    c->checkpoints = strdup(o->checkpoints);
    c->wakes = wakes_new();
    c->dispatch = dispatch_new();
    c->samples = samples_new(c->dispatch);
    c->progress = progress_new();
    c->planner = planner_new(NULL, o->data_roots, o->n_data_roots);
    c->inbox = inbox_new();
    c->rendezvous = rendezvous_new();
    if (!c->database || !c->checkpoints || !c->wakes || !c->dispatch || !c->samples || !c->progress || !c->planner ||
        !c->inbox || !c->rendezvous)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the controller");
    struct store_options options = { .conninfo = c->database,
                                     .connections = o->connections ? o->connections : DEFAULT_CONNECTIONS };
    TRY(store_open(&options, &c->store, e));
    struct ingest_listener listener = {
        .stored = on_stored, .checkpoint = on_checkpoint, .changed = on_changed, .metric = on_metric, .ctx = c
    };
    TRY(retire_open(c->store, c->checkpoints, &c->retire, e));
    TRY(prune_open(c->store, c->checkpoints, o->keep_ended_days, &c->prune, e));
    TRY(ingest_open(c->store, &listener, &c->ingest, e));
    if (pthread_create(&c->thread, NULL, controller_loop, c) != 0)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for the controller's loop");
    c->thread_runs = true;
    return ST_OK;
}

status_t controller_open(const struct controller_options *options, struct controller **ret, struct err *e) {
    struct controller *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the controller");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    status_t st = build(c, options, e);
    if (st != ST_OK) {
        controller_close(c);
        return st;
    }
    *ret = c;
    return ST_OK;
}

struct controller *controller_close(struct controller *c) {
    if (!c)
        return NULL;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->thread_runs) {
        inbox_stir(c->inbox);
        pthread_join(c->thread, NULL);
    }
    c->ingest = ingest_close(c->ingest);
    c->retire = retire_close(c->retire);
    c->prune = prune_close(c->prune);
    c->inbox = inbox_free(c->inbox);
    c->samples = samples_free(c->samples);
    c->dispatch = dispatch_free(c->dispatch);
    c->wakes = wakes_free(c->wakes);
    c->progress = progress_free(c->progress);
    c->planner = planner_free(c->planner);
    c->scheduler = scheduler_free(c->scheduler);
    c->rendezvous = rendezvous_free(c->rendezvous);
    launches_done(&c->launches);
    scheduler_actions_done(&c->actions);
    free(c->starts.items);
    c->store = store_close(c->store);
    free(c->database);
    free(c->checkpoints);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

status_t controller_leads(struct controller *c, int64_t *ret_epoch, struct err *e) {
    pthread_mutex_lock(&c->lock);
    bool leads = c->leads;
    int64_t epoch = c->epoch;
    pthread_mutex_unlock(&c->lock);
    if (!leads)
        return err_set(e, ST_UNAVAILABLE,
                       epoch ? "this controller waits to lead again: its database is away, or another controller leads"
                             : "this controller does not lead yet");
    *ret_epoch = epoch;
    return ST_OK;
}

status_t controller_judge(struct controller *c, int64_t epoch, status_t st, struct err *e) {
    int64_t current;
    if (st != ST_FAILED_PRECONDITION || (store_leader_current(c->store, &current, NULL) == ST_OK && current == epoch))
        return st;
    return err_set(e, ST_UNAVAILABLE, "the controller has lost its lead meanwhile: ask again");
}

status_t controller_wait_leading(struct controller *c, deadline_ms_t deadline, struct err *e) {
    struct timespec until = deadline_timespec(deadline);
    pthread_mutex_lock(&c->lock);
    int rc = 0;
    while (!c->leads && !c->deposed && !c->stopping && rc == 0)
        rc = pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until);
    bool leads = c->leads;
    pthread_mutex_unlock(&c->lock);
    return leads ? ST_OK : err_set(e, ST_UNAVAILABLE, "this controller does not lead yet");
}

bool controller_deposed(struct controller *c) {
    pthread_mutex_lock(&c->lock);
    bool deposed = c->deposed;
    pthread_mutex_unlock(&c->lock);
    return deposed;
}

struct store *controller_store(struct controller *c) {
    return c->store;
}
struct wakes *controller_wakes(struct controller *c) {
    return c->wakes;
}
struct dispatch *controller_dispatch(struct controller *c) {
    return c->dispatch;
}
struct ingest *controller_ingest(struct controller *c) {
    return c->ingest;
}
struct samples *controller_samples(struct controller *c) {
    return c->samples;
}
struct planner *controller_planner(struct controller *c) {
    return c->planner;
}

struct progress *controller_progress(struct controller *c) {
    return c->progress;
}
const char *controller_checkpoints(struct controller *c) { return c->checkpoints; }

void controller_submitted(struct controller *c, const struct scheduler_job_row *row) {
    struct inbox_item item = { .kind = INBOX_SUBMITTED, .row = *row };
    item.unhurried = row->priority <= atomic_load(&c->waiting[row->slot]);
    /* The row is stored: this must not be lost. Submitters wait for the database, which bounds them. */
    status_ignore(inbox_put(c->inbox, &item, true, NULL));
}

void controller_submitted_perhaps(struct controller *c) { atomic_store(&c->rows_unsure, true); }

/* The stored id names the question and the job too, so that one client's id means one thing. */
static status_t ask_loop(struct controller *c, struct inbox_item *item, const char *kind, const char *request_id,
                         deadline_ms_t deadline, const char **ret_reason, struct err *e) {
    char id[ASK_REQUEST_BYTES] = "";
    *ret_reason = NULL;
    if (request_id[0])
        snprintf(id, sizeof id, "controller-%s-%lld-%.*s", kind, (long long)item->job, CONTROLLER_REQUEST_BYTES,
                 request_id);
    struct ask *ask = ask_new(id);
    if (!ask)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a question to the loop");
    item->ask = ask;
    status_t st = inbox_put(c->inbox, item, false, e);
    if (st == ST_OK)
        st = ask_wait(ask, deadline, ret_reason, e);
    else
        ask_unref(ask); /* the loop's */
    ask_unref(ask);
    return st;
}

status_t controller_cancel(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                           const char **ret_reason, struct err *e) {
    return ask_loop(c, &(struct inbox_item){ .kind = INBOX_CANCEL, .job = job }, "cancel", request_id, deadline,
                    ret_reason, e);
}

status_t controller_pause(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                          const char **ret_reason, struct err *e) {
    return ask_loop(c, &(struct inbox_item){ .kind = INBOX_PAUSE, .job = job }, "pause", request_id, deadline,
                    ret_reason, e);
}

status_t controller_resume(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                           const char **ret_reason, struct err *e) {
    return ask_loop(c, &(struct inbox_item){ .kind = INBOX_RESUME, .job = job }, "resume", request_id, deadline,
                    ret_reason, e);
}

status_t controller_retry(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                          const char **ret_reason, struct err *e) {
    return ask_loop(c, &(struct inbox_item){ .kind = INBOX_RETRY, .job = job }, "retry", request_id, deadline,
                    ret_reason, e);
}

status_t controller_explain(struct controller *c, int64_t job, deadline_ms_t deadline,
                            struct scheduler_explanation **ret, struct err *e) {
    struct ask *ask = ask_new("");
    if (!ask)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a question to the loop");
    const char *reason;
    status_t st = inbox_put(c->inbox, &(struct inbox_item){ .kind = INBOX_EXPLAIN, .job = job, .ask = ask }, false, e);
    if (st == ST_OK)
        st = ask_wait(ask, deadline, &reason, e);
    else
        ask_unref(ask); /* the loop's */
    if (st == ST_OK)
        *ret = ask_take_explanation(ask);
    if (st == ST_DEADLINE_EXCEEDED)
        st = err_set(e, st, "the controller could not answer in time: its database is away, or it is behind");
    ask_unref(ask);
    return st;
}

/* The loop reads the row: of marks that are set at once by several it takes the one that stayed. */
static status_t tell_drain(struct controller *c, const char *executor, deadline_ms_t deadline, struct err *e) {
    struct inbox_item item = { .kind = INBOX_DRAIN };
    const char *reason;
    snprintf(item.executor, sizeof item.executor, "%s", executor);
    return ask_loop(c, &item, "drain", "", deadline, &reason, e);
}

status_t controller_drain(struct controller *c, const char *executor, const char *reason, const char *requester,
                          bool now, deadline_ms_t deadline, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_judge(c, epoch, store_executor_drain(c->store, epoch, executor, reason, requester, now, e), e));
    log_event(LOG_INFO, "executor_drained", "executor", LOG_STR(executor), "reason", LOG_STR(reason), "requester",
              LOG_STR(requester), "now", LOG_INT(now), NULL);
    return tell_drain(c, executor, deadline, e);
}

status_t controller_undrain(struct controller *c, const char *executor, deadline_ms_t deadline, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_judge(c, epoch, store_executor_undrain(c->store, epoch, executor, e), e));
    log_event(LOG_INFO, "executor_undrained", "executor", LOG_STR(executor), NULL);
    return tell_drain(c, executor, deadline, e);
}

status_t controller_checkpoint_pin(struct controller *c, int64_t job, int64_t id, bool pinned, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_judge(c, epoch, store_checkpoint_pin(c->store, epoch, job, id, pinned, e), e));
    log_event(LOG_INFO, pinned ? "checkpoint_pinned" : "checkpoint_unpinned", "job", LOG_INT(job), "checkpoint",
              LOG_INT(id), NULL);
    if (!pinned)
        retire_soon(c->retire, job);
    return ST_OK;
}

status_t controller_checkpoint_delete(struct controller *c, int64_t job, int64_t id, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_judge(c, epoch, store_checkpoint_delete(c->store, epoch, job, id, e), e));
    log_event(LOG_INFO, "checkpoint_deleted", "job", LOG_INT(job), "checkpoint", LOG_INT(id), NULL);
    retire_soon(c->retire, job);
    return ST_OK;
}

status_t controller_delete(struct controller *c, int64_t job, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_judge(c, epoch, store_job_delete(c->store, epoch, job, e), e));
    log_event(LOG_INFO, "job_deleted", "job", LOG_INT(job), NULL);
    prune_soon(c->prune);
    return ST_OK;
}

status_t controller_agent_said(struct controller *c, const char *executor, int64_t incarnation,
                               const Trainyard__V1__AgentMessage *m, struct err *e) {
    size_t n = trainyard__v1__agent_message__get_packed_size(m);
    uint8_t *packed = malloc(n ? n : 1);
    if (!packed)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a message of executor %s", executor);
    trainyard__v1__agent_message__pack(m, packed);
    struct inbox_item item = { .kind = INBOX_AGENT, .incarnation = incarnation, .message_bytes = n };
    item.message = trainyard__v1__agent_message__unpack(NULL, n, packed);
    free(packed);
    if (!item.message)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a message of executor %s", executor);
    strncpy(item.executor, executor, sizeof item.executor - 1);
    status_t st = inbox_put(c->inbox, &item, false, e);
    if (st != ST_OK)
        trainyard__v1__agent_message__free_unpacked(item.message, NULL);
    return st;
}

void controller_stats(struct controller *c, struct controller_stats *ret) {
    pthread_mutex_lock(&c->lock);
    *ret = (struct controller_stats){ .scheduler = c->counts, .leads = c->leads, .epoch = c->epoch };
    pthread_mutex_unlock(&c->lock);
    ret->attached = dispatch_count(c->dispatch);
    ret->events_waiting = inbox_count(c->inbox);
    ret->events = atomic_load(&c->events);
    ret->actions = atomic_load(&c->actions_done);
    ret->loop_busy_ns = atomic_load(&c->busy_ns);
}
