/* Opens and closes the controller, and serves the calls of handlers (service/rpc, service/http). A call has one of
 * these forms:
 *
 *   read      from memory, under c->lock or from an atomic: controller_leads, controller_stats
 *   write     to the store, under the epoch that controller_leads returned: pins, verifications, deletions. The store
 *             refuses the write if the epoch is over, and controller_write_status turns that into UNAVAILABLE
 *   request   to the loop, for each move of a job: send_request puts an item into the inbox and waits for its reply
 *   drain     a write, then a request: the loop reads the row again
 *
 * controller_admit checks the election that an executor has obeyed. If the database does not know it, the loop either
 * skips job ids (an older epoch) or takes a higher epoch (leadership_raise_epoch).
 *
 * The ingest's threads report stored records and committed checkpoints through the callbacks on_*, which use the inbox
 * as well, so that only the loop's thread uses the scheduler. */
#include "service/controller/controller.h"

#include "api/codec/message.h"
#include "base/alloc.h"
#include "base/cluster_mark.h"
#include "base/log.h"
#include "service/controller/state.h"
#include "service/store/checkpoint.h"
#include "service/store/job_delete.h"
#include "service/store/leader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One for each thread that may use the store at once: 16 workers of RPCs, the loop, INGEST_THREADS writers, five
 * background tasks, the notifier's, and the pages of service/http. */
#define DEFAULT_CONNECTIONS 32
#define CANCEL_TRIAL_MS     5000
/* Puts an item that must not be refused. The number of such items is bounded. A closed inbox needs none. */
static void notify_loop(struct controller *c, const struct inbox_item *item) {
    status_ignore(inbox_put(c->inbox, item, true, NULL));
}

static void on_stored(void *ctx, int64_t job, int attempt, int rank, int64_t sequence) {
    struct controller *c = ctx;
    struct inbox_item item = {
        .kind = INBOX_STORED, .job = job, .attempt = attempt, .rank = rank, .sequence = sequence
    };
    notify_loop(c, &item);
}

static void on_checkpoint(void *ctx, int64_t job, int attempt, int64_t step, bool final) {
    struct controller *c = ctx;
    struct inbox_item item = { .kind = INBOX_COMMITTED, .job = job, .attempt = attempt, .step = step, .final = final };
    notify_loop(c, &item);
    job_watchers_notify(c->job_watchers, job);
    checkpoint_gc_request(c->checkpoint_gc, job);
}

static void on_changed(void *ctx, int64_t job) {
    job_watchers_notify_later(((struct controller *)ctx)->job_watchers, job);
}

static void on_metric(void *ctx, int64_t job, int attempt, int64_t step, const char *name, double value) {
    progress_put(((struct controller *)ctx)->progress, job, attempt, step, name, value);
}

static void place_fill(struct controller *c, const struct controller_options *o) {
    size_t n = 0;
    c->checkpoint_paths[n++] = alloc_copy_text(o->checkpoints);
    for (size_t i = 0; i < o->n_checkpoint_roots && n < CONTROLLER_MAX_ROOTS; i++)
        c->checkpoint_paths[n++] = alloc_copy_text(o->checkpoint_roots[i]);
    c->place = (struct checkpoint_place){
        .directory = c->checkpoint_paths[0],
        .cluster = c->cluster,
        .objects = &c->checkpoint_objects,
        .roots = { .option = "--checkpoint-root of this service",
                   .paths = (const char *const *)c->checkpoint_paths,
                   .n = n },
    };
}

/* When this service cannot reach the directory or cannot write to it, an executor marks it later. */
static status_t take_directory(struct controller *c, struct err *e) {
    struct err why = { "" };
    bool taken;
    TRY(store_cluster_id(c->store, c->cluster, e));
    status_t st = cluster_mark(NULL, c->place.directory, c->cluster, CLUSTER_MARK_TAKE, &taken, &why);
    if (st == ST_FAILED_PRECONDITION || st == ST_DATA_LOSS)
        return err_set(e, st, "--checkpoints: %s", why.msg);
    if (st != ST_OK && st != ST_NOT_FOUND)
        log_event(LOG_WARN, "checkpoint_directory_unmarked", "reason", LOG_STR(why.msg), NULL);
    if (taken)
        log_event(LOG_INFO, "checkpoint_directory_taken", "directory", LOG_STR(c->place.directory), "cluster",
                  LOG_STR(c->cluster), NULL);
    return ST_OK;
}

/* The ids let an operator see which keys are in use (`trainyard secret list`). */
static status_t keys_take(struct controller *c, const struct controller_options *o, struct err *e) {
    status_t st = keyring_open(o->secret_key_files, o->n_secret_key_files, &c->keyring, e);
    if (st != ST_OK)
        return err_prefix(e, st, "--secret-key-file: ");
    for (size_t i = 0; i < keyring_size(c->keyring); i++)
        log_event(LOG_INFO, "secret_key", "key", LOG_STR(keyring_id(c->keyring, i)), "encrypts",
                  LOG_STR(i == 0 ? "yes" : "no"), NULL);
    return ST_OK;
}

static status_t create_trial(void *ctx, const struct job_creation *creation, int64_t *ret_job, struct err *e);
static status_t cancel_trial(void *ctx, int64_t job, const char *why, struct err *e);

static status_t build(struct controller *c, const struct controller_options *o, struct err *e) {
    c->database = alloc_copy_text(o->database);
    TRY(keys_take(c, o, e));
    place_fill(c, o);
    c->code_bytes = o->code_bytes ? o->code_bytes : CONTROLLER_CODE_BYTES;
    c->checkpoint_wait_ms = o->checkpoint_wait_s * INT64_C(1000);
    c->authority = o->authority;
    controller_set_max_jobs(c, o->max_jobs);
    c->fixed_queues = o->fixed_queues;
    c->elastic_settle_ms = o->elastic_settle_s * INT64_C(1000);
    c->job_watchers = job_watchers_new();
    c->dispatch = dispatch_new();
    c->samples = samples_new(c->dispatch);
    c->spec_checks = spec_checks_new(c->dispatch);
    c->check_cache = check_cache_new();
    c->progress = progress_new();
    c->planner = planner_new(NULL, &o->plan_data);
    c->inbox = inbox_new();
    c->election_history = election_history_new();
    c->rendezvous = rendezvous_new();
    struct store_options options = { .conninfo = c->database,
                                     .connections = o->connections ? o->connections : DEFAULT_CONNECTIONS };
    TRY(store_open(&options, &c->store, e));
    TRY(take_directory(c, e));
    c->checkpoint_objects = (struct checkpoint_objects){ c->store, c->keyring, c->dispatch, c->spec_checks };
    struct ingest_listener listener = {
        .stored = on_stored, .checkpoint = on_checkpoint, .changed = on_changed, .metric = on_metric, .ctx = c
    };
    TRY(checkpoint_gc_open(c->store, &c->place, &c->checkpoint_gc, e));
    const struct job_gc_days days = { .ended = o->keep_ended_days,
                                      .lost = o->forget_lost_days,
                                      .audit = o->audit_days };
    TRY(job_gc_open(c->store, &c->place, &days, &c->job_gc, e));
    TRY(code_gc_open(c->store, &c->code_gc, e));
    TRY(secret_rotation_open(c->store, c->keyring, &c->secret_rotation, e));
    const struct sweeps_jobs jobs = { .create = create_trial, .cancel = cancel_trial, .ctx = c };
    TRY(sweeps_open(c->store, &jobs, &c->sweeps, e));
    status_t st = notifier_open(c->store, o->notify_file, &c->notifier, e);
    if (st != ST_OK)
        return err_prefix(e, st, "--notify: ");
    for (size_t i = 0; notifier_key_file(c->notifier, i); i++)
        planner_except(c->planner, notifier_key_file(c->notifier, i));
    TRY(ingest_open(c->store, &listener, &c->ingest, e));
    if (pthread_create(&c->thread, NULL, controller_loop, c) != 0)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for the controller's loop");
    c->thread_runs = true;
    return ST_OK;
}

status_t controller_open(const struct controller_options *options, struct controller **ret, struct err *e) {
    struct controller *c = alloc_zeroed(1, sizeof *c);
    c->times = (struct controller_times){ .turns = HISTOGRAM_OF_CALLS, .queued = HISTOGRAM_OF_WAITS };
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
        inbox_wake(c->inbox);
        pthread_join(c->thread, NULL);
    }
    if (c->spec_checks)
        spec_checks_stop(c->spec_checks); /* garbage collection may wait for an executor */
    c->ingest = ingest_close(c->ingest);
    c->checkpoint_gc = checkpoint_gc_close(c->checkpoint_gc);
    c->job_gc = job_gc_close(c->job_gc);
    c->code_gc = code_gc_close(c->code_gc);
    c->secret_rotation = secret_rotation_close(c->secret_rotation);
    c->sweeps = sweeps_close(c->sweeps);
    c->notifier = notifier_close(c->notifier);
    c->inbox = inbox_free(c->inbox);
    c->samples = samples_free(c->samples);
    c->spec_checks = spec_checks_free(c->spec_checks);
    c->check_cache = check_cache_free(c->check_cache);
    c->dispatch = dispatch_free(c->dispatch);
    c->job_watchers = job_watchers_free(c->job_watchers);
    c->election_history = election_history_free(c->election_history);
    c->progress = progress_free(c->progress);
    c->planner = planner_free(c->planner);
    c->scheduler = scheduler_free(c->scheduler);
    c->rendezvous = rendezvous_free(c->rendezvous);
    start_orders_done(&c->start_orders);
    scheduler_actions_done(&c->actions);
    free(c->refused_orders.items);
    c->store = store_close(c->store);
    c->keyring = keyring_close(c->keyring);
    free(c->database);
    for (size_t i = 0; i < CONTROLLER_MAX_ROOTS; i++)
        free(c->checkpoint_paths[i]);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

/* With the lock held. */
static status_t refuse_not_leading(const struct controller *c, struct err *e) {
    if (c->lead == CONTROLLER_CANNOT_LEAD)
        return err_set(e, ST_UNAVAILABLE, "this controller cannot lead: %s", c->cannot_lead.msg);
    if (c->lead == CONTROLLER_STANDS_BY)
        return err_set(e, ST_UNAVAILABLE, "this controller does not lead: another one does");
    return err_set(e, ST_UNAVAILABLE, "this controller does not lead yet");
}

status_t controller_leads(struct controller *c, int64_t *ret_epoch, struct err *e) {
    pthread_mutex_lock(&c->lock);
    status_t st = c->leads ? ST_OK : refuse_not_leading(c, e);
    *ret_epoch = c->epoch;
    pthread_mutex_unlock(&c->lock);
    return st;
}

status_t controller_write_status(struct controller *c, int64_t epoch, status_t st, struct err *e) {
    bool stands;
    if (st != ST_FAILED_PRECONDITION || (store_leader_is_current(c->store, epoch, &stands, NULL) == ST_OK && stands))
        return st;
    return err_set(e, ST_UNAVAILABLE, "the controller has lost its lead meanwhile: ask again");
}

status_t controller_wait_leading(struct controller *c, deadline_ms_t deadline, struct err *e) {
    struct timespec until = deadline_timespec(deadline);
    pthread_mutex_lock(&c->lock);
    int rc = 0;
    while (!c->leads && !c->deposed && !c->stopping && rc == 0)
        rc = pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until);
    status_t st = c->leads ? ST_OK : refuse_not_leading(c, e);
    pthread_mutex_unlock(&c->lock);
    return st;
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
struct job_watchers *controller_job_watchers(struct controller *c) {
    return c->job_watchers;
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
struct spec_checks *controller_spec_checks(struct controller *c) {
    return c->spec_checks;
}
struct check_cache *controller_check_cache(struct controller *c) {
    return c->check_cache;
}
struct notifier *controller_notifier(struct controller *c) {
    return c->notifier;
}
struct planner *controller_planner(struct controller *c) {
    return c->planner;
}

struct progress *controller_progress(struct controller *c) {
    return c->progress;
}
const struct checkpoint_place *controller_place(const struct controller *c) { return &c->place; }
struct sweeps *controller_sweeps(struct controller *c) {
    return c->sweeps;
}
int64_t controller_code_bytes(const struct controller *c) { return c->code_bytes; }
const struct keyring *controller_keyring(const struct controller *c) { return c->keyring; }
const struct authority *controller_authority(const struct controller *c) { return c->authority; }

void controller_submitted(struct controller *c, const struct scheduler_job_row *row) {
    struct inbox_item item = { .kind = INBOX_SUBMITTED, .row = *row };
    item.low_priority = row->priority <= atomic_load(&c->waiting[row->slot]);
    notify_loop(c, &item); /* not refused, because the row is stored; bounded, because each submit waits for that */
}

void controller_set_max_jobs(struct controller *c, int max_jobs) {
    atomic_store(&c->max_jobs, max_jobs ? max_jobs : CONTROLLER_MAX_JOBS);
}

/* The count is that of the last tick, so that as many jobs more may be created as callers manage in between. */
static status_t check_max_jobs(struct controller *c, struct err *e) {
    const int max_jobs = atomic_load(&c->max_jobs);
    pthread_mutex_lock(&c->lock);
    const int jobs = c->counts.jobs;
    pthread_mutex_unlock(&c->lock);
    if (jobs < max_jobs)
        return ST_OK;
    return err_set(e, ST_RESOURCE_EXHAUSTED,
                   "%d jobs have not ended, and the controller takes at most %d (--max-jobs): submit the job when "
                   "others have ended",
                   jobs, max_jobs);
}

static status_t check_queue(struct controller *c, const char *name, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_queue_row row;
    pthread_mutex_lock(&c->lock);
    const bool many = c->counts.queues >= CONTROLLER_MAX_QUEUES; /* at the last tick */
    pthread_mutex_unlock(&c->lock);
    if (!c->fixed_queues && !many)
        return ST_OK;
    status_t st = store_queue_get(c->store, m, name, &row, e);
    if (st == ST_NOT_FOUND && !c->fixed_queues)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "queue: '%s' was not created, and there are %d queues of jobs that have not ended, as many as "
                       "the controller takes: use one that an admin has created with 'trainyard queue create'",
                       name, CONTROLLER_MAX_QUEUES);
    if (st == ST_NOT_FOUND)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "queue: '%s' was not created; 'trainyard queue list' shows the queues, and an admin creates one "
                       "with 'trainyard queue create'",
                       name);
    return st;
}

/* A repeated request is never refused if its job exists. */
static status_t check_new(struct controller *c, const struct job_creation *x, struct job_created *ret, struct err *e) {
    status_t st = check_max_jobs(c, e);
    if (st == ST_OK)
        st = check_queue(c, x->spec->queue, e);
    ret->existed = st != ST_OK &&
                   store_job_requested(c->store, x->request_id, x->request_digest, &ret->job, NULL) == ST_OK;
    return ret->existed ? ST_OK : st;
}

status_t controller_create(struct controller *c, const struct job_creation *x, struct job_created *ret, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    *ret = (struct job_created){ 0 };
    TRY(check_new(c, x, ret, e));
    if (ret->existed) {
        controller_submitted_perhaps(c);
        return ST_OK;
    }
    status_t st = controller_write_status(c, epoch, job_create(c->store, epoch, x, ret, e), e);
    if (st == ST_UNAVAILABLE || st == ST_DEADLINE_EXCEEDED) /* the row may be committed: the answer was lost */
        controller_submitted_perhaps(c);
    TRY(st);
    const struct scheduler_job_row row = scheduler_row_of(&ret->row);
    if (ret->existed) /* if the first request failed after its COMMIT, the loop does not know the row */
        controller_submitted_perhaps(c);
    else
        controller_submitted(c, &row);
    return ST_OK;
}

void controller_submitted_perhaps(struct controller *c) { atomic_store(&c->rows_need_rescan, true); }

/* Puts the item into the inbox and waits for the reply to its request, of which the caller keeps its reference. */
static status_t put_request(struct controller *c, const struct inbox_item *item, deadline_ms_t deadline,
                            const char **ret_reason, struct err *e) {
    const bool stored = item->kind == INBOX_QUEUE; /* the change is: only the loop must still learn of it */
    status_t st = inbox_put(c->inbox, item, stored, e);
    if (st == ST_OK)
        return loop_request_wait(item->request, deadline, ret_reason, e);
    loop_request_unref(item->request); /* the loop's reference */
    return st;
}

/* The stored id contains the kind of the request and the job: a client may use one id for different requests. */
static status_t send_request_because(struct controller *c, struct inbox_item *item, const char *kind,
                                     const char *request_id, const char *why, deadline_ms_t deadline,
                                     const char **ret_reason, struct err *e) {
    char id[LOOP_REQUEST_ID_BYTES] = "";
    *ret_reason = NULL;
    if (request_id[0])
        snprintf(id, sizeof id, "controller-%s-%lld-%.*s", kind, (long long)item->job, CONTROLLER_REQUEST_BYTES,
                 request_id);
    struct loop_request *request = loop_request_new(id, why);
    item->request = request;
    status_t st = put_request(c, item, deadline, ret_reason, e);
    loop_request_unref(request);
    return st;
}

static status_t send_request(struct controller *c, struct inbox_item *item, const char *kind, const char *request_id,
                             deadline_ms_t deadline, const char **ret_reason, struct err *e) {
    return send_request_because(c, item, kind, request_id, "", deadline, ret_reason, e);
}

status_t controller_fits(struct controller *c, const struct scheduler_job_row *row, deadline_ms_t deadline,
                         struct err *e) {
    if (row->world_size <= atomic_load(&c->offered[row->slot][row->world_size > 1]))
        return ST_OK;
    /* An executor may just have attached. Its hello is before this request in the inbox, so that the loop's count is
     * newer. */
    const char *reason;
    struct inbox_item item = { .kind = INBOX_FIT, .row = *row };
    return send_request(c, &item, "fit", "", deadline, &reason, e);
}

status_t controller_cancel(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                           const char **ret_reason, struct err *e) {
    return send_request(c, &(struct inbox_item){ .kind = INBOX_CANCEL, .job = job }, "cancel", request_id, deadline,
                        ret_reason, e);
}

/* For sweeps.c: a job that has ended meanwhile, or is being cancelled, needs nothing. */
static status_t cancel_trial(void *ctx, int64_t job, const char *why, struct err *e) {
    const char *refusal;
    status_t st = send_request_because(ctx, &(struct inbox_item){ .kind = INBOX_CANCEL, .job = job }, "cancel", "", why,
                                       deadline_in(CANCEL_TRIAL_MS), &refusal, e);
    return st == ST_FAILED_PRECONDITION || st == ST_NOT_FOUND ? ST_OK : st;
}

static status_t create_trial(void *ctx, const struct job_creation *creation, int64_t *ret_job, struct err *e) {
    struct job_created created;
    TRY(controller_create(ctx, creation, &created, e));
    *ret_job = created.job;
    return ST_OK;
}

status_t controller_pause(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                          const char **ret_reason, struct err *e) {
    return send_request(c, &(struct inbox_item){ .kind = INBOX_PAUSE, .job = job }, "pause", request_id, deadline,
                        ret_reason, e);
}

status_t controller_resume(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                           const char **ret_reason, struct err *e) {
    return send_request(c, &(struct inbox_item){ .kind = INBOX_RESUME, .job = job }, "resume", request_id, deadline,
                        ret_reason, e);
}

status_t controller_retry(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                          const char **ret_reason, struct err *e) {
    return send_request(c, &(struct inbox_item){ .kind = INBOX_RETRY, .job = job }, "retry", request_id, deadline,
                        ret_reason, e);
}

status_t controller_explain(struct controller *c, int64_t job, deadline_ms_t deadline,
                            struct scheduler_explanation **ret, struct err *e) {
    struct loop_request *request = loop_request_new("", "");
    const struct inbox_item item = { .kind = INBOX_EXPLAIN, .job = job, .request = request };
    const char *reason;
    status_t st = put_request(c, &item, deadline, &reason, e);
    if (st == ST_OK)
        *ret = loop_request_take_explanation(request);
    if (st == ST_DEADLINE_EXCEEDED)
        st = err_set(e, st, "the controller could not answer in time: its database is unreachable, or it is behind");
    loop_request_unref(request);
    return st;
}

/* The loop reads the row. If several clients set the mark at the same time, the loop takes the one that was stored
 * last. */
static status_t handle_drain(struct controller *c, const char *executor, deadline_ms_t deadline, struct err *e) {
    struct inbox_item item = { .kind = INBOX_DRAIN };
    const char *reason;
    snprintf(item.executor, sizeof item.executor, "%s", executor);
    return send_request(c, &item, "drain", "", deadline, &reason, e);
}

status_t controller_drain(struct controller *c, const char *executor, const char *reason, const char *requester,
                          bool now, deadline_ms_t deadline, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_write_status(c, epoch, store_executor_drain(c->store, epoch, executor, reason, requester, now, e),
                                e));
    log_event(LOG_INFO, "executor_drained", "executor", LOG_STR(executor), "reason", LOG_STR(reason), "requester",
              LOG_STR(requester), "now", LOG_INT(now), NULL);
    return handle_drain(c, executor, deadline, e);
}

status_t controller_undrain(struct controller *c, const char *executor, deadline_ms_t deadline, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_write_status(c, epoch, store_executor_undrain(c->store, epoch, executor, e), e));
    log_event(LOG_INFO, "executor_undrained", "executor", LOG_STR(executor), NULL);
    return handle_drain(c, executor, deadline, e);
}

/* The loop reads the row, as after a drain. A full inbox does not refuse the item: a repeated call would fail, because
 * the row has changed, before the loop learns of it. The number of such items is bounded by that of the workers. */
static status_t handle_queue(struct controller *c, const char *name, deadline_ms_t deadline, struct err *e) {
    struct inbox_item item = { .kind = INBOX_QUEUE };
    const char *reason;
    snprintf(item.row.queue, sizeof item.row.queue, "%s", name);
    return send_request(c, &item, "queue", "", deadline, &reason, e);
}

status_t controller_queue_create(struct controller *c, const char *name, const struct store_queue_settings *settings,
                                 deadline_ms_t deadline, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_write_status(c, epoch, store_queue_create(c->store, epoch, name, settings, e), e));
    return handle_queue(c, name, deadline, e);
}

status_t controller_queue_set(struct controller *c, const char *name, store_queue_change *change, const void *ctx,
                              deadline_ms_t deadline, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_write_status(c, epoch, store_queue_set(c->store, epoch, name, change, ctx, e), e));
    return handle_queue(c, name, deadline, e);
}

status_t controller_queue_delete(struct controller *c, const char *name, deadline_ms_t deadline, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_write_status(c, epoch, store_queue_delete(c->store, epoch, name, e), e));
    return handle_queue(c, name, deadline, e);
}

status_t controller_checkpoint_pin(struct controller *c, int64_t job, int64_t id, bool pinned, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_write_status(c, epoch, store_checkpoint_pin(c->store, epoch, job, id, pinned, e), e));
    log_event(LOG_INFO, pinned ? "checkpoint_pinned" : "checkpoint_unpinned", "job", LOG_INT(job), "checkpoint",
              LOG_INT(id), NULL);
    if (!pinned)
        checkpoint_gc_request(c->checkpoint_gc, job);
    return ST_OK;
}

status_t controller_checkpoint_verified(struct controller *c, int64_t job, int64_t id, enum store_check_result result,
                                        const char *reason, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_write_status(c, epoch, store_checkpoint_verified(c->store, epoch, job, id, result, reason, e), e));
    log_event(LOG_INFO, "checkpoint_verified", "job", LOG_INT(job), "checkpoint", LOG_INT(id), "reason",
              LOG_STR(result == STORE_CHECK_GOOD ? "" : reason), NULL);
    job_watchers_notify(c->job_watchers, job);
    return ST_OK;
}

status_t controller_checkpoint_delete(struct controller *c, int64_t job, int64_t id, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_write_status(c, epoch, store_checkpoint_delete(c->store, epoch, job, id, e), e));
    log_event(LOG_INFO, "checkpoint_deleted", "job", LOG_INT(job), "checkpoint", LOG_INT(id), NULL);
    checkpoint_gc_request(c->checkpoint_gc, job);
    return ST_OK;
}

status_t controller_delete(struct controller *c, int64_t job, struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(controller_write_status(c, epoch, store_job_delete(c->store, epoch, job, e), e));
    log_event(LOG_INFO, "job_deleted", "job", LOG_INT(job), NULL);
    job_gc_wake(c->job_gc);
    return ST_OK;
}

/* Keeps the highest epoch: the next epoch is then above all that were reported. */
static void note_unknown_epoch(struct controller *c, int64_t epoch) {
    long long known = atomic_load(&c->unknown_epoch);
    while (known < epoch && !atomic_compare_exchange_weak(&c->unknown_epoch, &known, epoch)) {
    }
    inbox_wake(c->inbox);
}

status_t controller_admit(struct controller *c, const Trainyard__V1__AgentHello *h, struct err *e) {
    int64_t epoch;
    char own[STORE_UUID_BYTES];
    TRY(controller_leads(c, &epoch, e));
    switch (election_history_check(c->election_history, h->cluster, h->highest_epoch, h->epoch_nonce)) {
    case ELECTION_KNOWN: return ST_OK;
    case ELECTION_IMPOSSIBLE:
        return err_set(e, ST_INVALID_ARGUMENT, "hello.highest_epoch: %lld is not within %lld of epoch %lld",
                       (long long)h->highest_epoch, ELECTION_MAX_EPOCHS_AHEAD, (long long)epoch);
    case ELECTION_OTHER_CLUSTER:
        election_history_cluster(c->election_history, own);
        return err_set(
            e, ST_FAILED_PRECONDITION,
            "executor %s belongs to cluster %.40s, and this controller serves cluster %s: check --controller; "
            "to move the host permanently, stop its executor and start it with a new --directory",
            h->executor, h->cluster, own);
    case ELECTION_FORGOTTEN: break;
    }
    if (h->highest_epoch < epoch) { /* the executor will obey this leader's epoch, which is higher */
        log_event(LOG_ERROR, "database_set_back", "epoch", LOG_INT(epoch), "executor", LOG_STR(h->executor), "heard",
                  LOG_INT(h->highest_epoch), "message",
                  LOG_STR("the executor has obeyed an epoch that the database does not know"), NULL);
        atomic_store(&c->election_forgotten, true);
        inbox_wake(c->inbox);
        return ST_OK;
    }
    note_unknown_epoch(c, h->highest_epoch);
    return err_set(e, ST_UNAVAILABLE,
                   "executor %s has obeyed epoch %lld, which the database of this controller, of epoch %lld, does not "
                   "know: a higher epoch is being taken; attach again",
                   h->executor, (long long)h->highest_epoch, (long long)epoch);
}

status_t controller_handle_agent_message(struct controller *c, const char *executor, int64_t incarnation,
                                         uint64_t ticket, const Trainyard__V1__AgentMessage *m, struct err *e) {
    struct inbox_item item = { .kind = INBOX_AGENT,
                               .incarnation = incarnation,
                               .ticket = ticket,
                               .welcomed = dispatch_is_welcomed(c->dispatch, ticket),
                               .message_bytes = trainyard__v1__agent_message__get_packed_size(m) };
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO &&
        !dispatch_token(c->dispatch, ticket, item.token)) /* now: the stream may have ended later on */
        return err_set(e, ST_ABORTED, "another stream of executor %s has attached", executor);
    TRY(message_copy(&m->base, &item.message, e));
    strncpy(item.executor, executor, sizeof item.executor - 1);
    status_t st = inbox_put(c->inbox, &item, false, e);
    if (st != ST_OK)
        trainyard__v1__agent_message__free_unpacked(item.message, NULL);
    return st;
}

void controller_stream_ended(struct controller *c) { inbox_wake(c->inbox); }

void controller_stats(struct controller *c, struct controller_stats *ret) {
    pthread_mutex_lock(&c->lock);
    *ret = (struct controller_stats){ .scheduler = c->counts, .lead = c->lead, .leads = c->leads, .epoch = c->epoch };
    ret->cannot_lead = c->cannot_lead;
    pthread_mutex_unlock(&c->lock);
    ret->attached = dispatch_count(c->dispatch);
    ret->events_waiting = inbox_count(c->inbox);
    ret->events = atomic_load(&c->events);
    ret->actions = atomic_load(&c->actions_done);
    ret->loop_busy_ns = atomic_load(&c->busy_ns);
    for (int i = 0; i < RANK_END_CAUSES; i++)
        ret->restarts[i] = atomic_load(&c->restarts[i]);
}

int64_t controller_beats(const struct controller *c) { return atomic_load(&c->beats); }

const struct controller_times *controller_times(const struct controller *c) { return &c->times; }
