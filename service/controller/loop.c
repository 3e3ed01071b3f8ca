/* The loop: one thread that owns the scheduler. It waits until this controller leads (leadership_take) and then repeats
 * turns until leadership is over:
 *
 *   1. waits for an item of the inbox, or for the next tick, and takes up to EVENTS_PER_TURN items
 *   2. writes the rows of all executors that attach, then handles the items in order: each becomes an event of the
 *      scheduler, whose actions run before the next item (actions.c). Waiting jobs start after the last item, or
 *      PLACE_MS after the last time: a thousand executors that attach together cost one walk of the queue
 *   3. handles the streams that have ended
 *   4. raises the epoch or skips job ids, if an executor knows more than the database
 *   5. every SCHEDULER_TICK_MS, runs a tick: heartbeats first, so that no lease expires after a heartbeat has arrived
 *   6. publishes the numbers that handlers read without the loop
 *
 * The loop may block in a write while the database is unreachable. Heartbeats are then kept in dispatch.c, and the
 * delay of the tick extends the leases. */
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/controller/state.h"
#include "service/store/executor.h"
#include "service/store/job_list.h"
#include "service/store/queue.h"

#include <stdlib.h>

/* The interval of checks that the leader's lock is still there. */
#define LEADER_CHECK_MS 1000
/* The interval of writes of heartbeat times, which only users read. */
#define LAST_SEEN_WRITE_MS 5000
/* The shortest interval of scans for QUEUED rows. A scan of a long queue takes time, and clients that repeat a submit
 * cause scans. */
#define FIND_MS 5000
/* The longest time for which events of one turn delay the start of waiting jobs. */
#define PLACE_MS 20

static void note_seen(void *ctx, const char *executor, int64_t last_seen_ms) {
    struct controller *c = ctx;
    struct scheduler_event ev = { .kind = EV_EXECUTOR_SEEN, .executor = executor, .last_seen_ms = last_seen_ms };
    scheduler_step(c->scheduler, &ev, clock_mono_ms(), &c->actions);
}

/* Only users read these times. If a write fails, the next one corrects it. */
static void write_last_seen(struct controller *c) {
    int64_t now_us = clock_wall_us(), now_ms = clock_mono_ms();
    if (now_ms < c->next_seen_ms)
        return;
    c->next_seen_ms = now_ms + LAST_SEEN_WRITE_MS;
    size_t cap = (size_t)dispatch_count(c->dispatch);
    CLEANUP(freep) struct dispatch_last_seen *last_seen = alloc_zeroed(cap, sizeof *last_seen);
    CLEANUP(freep) const char **ids = alloc_zeroed(cap, sizeof *ids);
    CLEANUP(freep) int64_t *times_us = alloc_zeroed(cap, sizeof *times_us);
    size_t n = dispatch_list(c->dispatch, last_seen, cap);
    for (size_t i = 0; i < n; i++) {
        ids[i] = last_seen[i].executor;
        times_us[i] = now_us - (now_ms - last_seen[i].last_seen_ms) * 1000;
    }
    if (n > 0)
        status_ignore(store_executor_heartbeats(c->store, c->own_epoch, ids, times_us, n, NULL));
}

/* Scans for QUEUED rows that the scheduler does not know. Only this thread moves a job out of QUEUED, so that the rows
 * that it reads stay valid until its next event. */
static void find_submitted(struct controller *c) {
    if (clock_mono_ms() < c->next_find_ms || !atomic_exchange(&c->rows_need_rescan, false))
        return;
    c->next_find_ms = clock_mono_ms() + FIND_MS;
    struct store_job_filter filter = { .state = STORE_JOB_QUEUED, .queue = "", .limit = LIMIT_PAGE_SIZE };
    size_t n;
    do {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_job *rows;
        if (store_job_list(c->store, m, &filter, &rows, &n, NULL) != ST_OK) {
            atomic_store(&c->rows_need_rescan, true); /* at the next tick */
            return;
        }
        for (size_t i = 0; i < n; i++) {
            struct scheduler_job_row row = scheduler_row_of(&rows[i]);
            filter.after.id = row.job;
            actions_run(c, &(struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
        }
    } while (n == LIMIT_PAGE_SIZE && !leadership_over(c));
}

/* The scheduler has received everything that arrived before, so that leases may expire now. */
static void tick(struct controller *c) {
    dispatch_take_seen(c->dispatch, note_seen, c);
    actions_run(c, &(struct scheduler_event){ .kind = EV_TICK });
    find_submitted(c);
    write_last_seen(c);
    queues_write_averages(c);
    rank_starts_write(c);
    job_watchers_flush(c->job_watchers);
    pthread_mutex_lock(&c->lock);
    c->counts = scheduler_counts(c->scheduler);
    pthread_mutex_unlock(&c->lock);
    if (clock_mono_ms() >= c->next_check_ms) {
        leadership_keep(c);
        c->next_check_ms = clock_mono_ms() + LEADER_CHECK_MS;
    }
}

/* True if the request was handled before: its move is stored, and only the reply was lost. */
static bool replied_before(struct controller *c, struct loop_request *request) {
    if (!request || !loop_request_id(request)[0])
        return false;
    struct err e = { "" };
    int64_t job;
    int tries = 0;
    status_t st;
    do
        st = store_request_find(c->store, loop_request_id(request), &job, &e);
    while (st != ST_NOT_FOUND && write_retry(c, st, &e, &tries) == WRITE_AGAIN);
    if (st == ST_OK)
        loop_request_reply(request, ST_OK, NULL, "");
    return st == ST_OK;
}

/* Replies to a request whose write was refused: by its guard, or because this controller no longer leads. */
static void reply_refused(struct controller *c, struct loop_request *request, status_t st, const char *reason,
                          const struct err *e) {
    if (leadership_over(c))
        loop_request_reply(request, ST_UNAVAILABLE, NULL, "this controller no longer leads");
    else
        loop_request_reply(request, st,
                           st == ST_NOT_FOUND             ? "JOB_NOT_FOUND"
                           : st == ST_FAILED_PRECONDITION ? reason
                                                          : NULL,
                           e->msg);
}

/* A retry moves the row before the scheduler receives the event. Only the store can check, under its locks, whether the
 * checkpoint that the job would begin with still exists, and a refusal must not leave a waiting job in the scheduler.
 * If the row is not FAILED, it is not moved, and the scheduler refuses the retry. */
static bool retry_row(struct controller *c, struct inbox_item *item) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job job;
    struct err e = { "" };
    bool origin_gone = false;
    status_t st;
    (void)WRITE_REPEATED(c, (st = store_job_get(c->store, m, item->job, &job, &e)), &e);
    if (st == ST_OK && job.state == STORE_JOB_FAILED) {
        struct request_id id = actions_request_id(c, item->request);
        struct store_job_move move = { .request_id = id.text,
                                       .job = job.id,
                                       .attempt = job.attempt,
                                       .from = STORE_JOB_FAILED,
                                       .to = STORE_JOB_QUEUED,
                                       .reason = "retried by its user" };
        (void)WRITE_REPEATED(c, (st = store_job_retry(c->store, c->own_epoch, &move, &origin_gone, &e)), &e);
    }
    if (st == ST_OK)
        item->row = scheduler_row_of(&job);
    else
        reply_refused(c, item->request, st, origin_gone ? "JOB_ORIGIN_GONE" : "JOB_NOT_FAILED", &e);
    return st == ST_OK;
}

static void place(struct controller *c) {
    if (scheduler_needs_placing(c->scheduler) && !leadership_over(c))
        actions_run(c, &(struct scheduler_event){ .kind = EV_PLACE });
}

static void explain(struct controller *c, const struct inbox_item *item) {
    place(c); /* what the jobs that can start now wait for is nothing */
    struct scheduler_explanation *x = alloc_zeroed(1, sizeof *x);
    scheduler_explain(c->scheduler, item->job, clock_mono_ms(), x);
    loop_request_reply_explanation(item->request, x);
}

static void reply_fit(struct controller *c, const struct inbox_item *item) {
    struct scheduler_fit fit;
    place(c);
    scheduler_fit(c->scheduler, item->row.slot, item->row.world_size, &fit);
    loop_request_reply(item->request, fit.fits ? ST_OK : ST_FAILED_PRECONDITION, NULL, fit.why);
}

/* The row has changed before the scheduler receives the event. */
static void handle_drain(struct controller *c, const struct inbox_item *item) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_executor row;
    struct err e = { "" };
    status_t st;
    (void)WRITE_REPEATED(c, (st = store_executor_get(c->store, m, item->executor, &row, &e)), &e);
    if (st == ST_OK)
        actions_run_request(c,
                            &(struct scheduler_event){ .kind = EV_EXECUTOR_DRAIN,
                                                       .executor = item->executor,
                                                       .drain = scheduler_drain_of(&row) },
                            item->request);
    else
        reply_refused(c, item->request, st, NULL, &e);
}

/* The same for the settings of a queue. */
static void handle_queue(struct controller *c, const struct inbox_item *item) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_queue_row row = { 0 };
    struct err e = { "" };
    struct scheduler_event ev = { .kind = EV_QUEUE_SET };
    int tries = 0;
    status_t st;
    do
        st = store_queue_get(c->store, m, item->row.queue, &row, &e);
    while (st != ST_NOT_FOUND && write_retry(c, st, &e, &tries) == WRITE_AGAIN);
    if (st == ST_NOT_FOUND) { /* deleted, perhaps after another change that this request was about */
        ev.kind = EV_QUEUE_DELETED;
        ev.queue.name = item->row.queue;
    } else if (st == ST_OK) {
        ev.queue = scheduler_queue_of(&row);
    } else {
        loop_request_reply(item->request, ST_UNAVAILABLE, NULL, e.msg);
        return;
    }
    actions_run_request(c, &ev, item->request);
}

static void handle(struct controller *c, struct inbox_item *item) {
    if (replied_before(c, item->request) || (item->kind == INBOX_RETRY && !retry_row(c, item)))
        return;
    struct scheduler_event ev = { .job = item->job,
                                  .attempt = item->attempt,
                                  .rank = item->rank,
                                  .sequence = item->sequence,
                                  .step = item->step,
                                  .final = item->final,
                                  .row = &item->row };
    switch (item->kind) {
    case INBOX_AGENT: handle_agent_message(c, item); return;
    case INBOX_EXPLAIN: explain(c, item); return;
    case INBOX_FIT: reply_fit(c, item); return;
    case INBOX_SUBMITTED: ev.kind = EV_JOB_SUBMITTED; break;
    case INBOX_CANCEL:
        ev.kind = EV_JOB_CANCEL;
        ev.reason = loop_request_why(item->request);
        break;
    case INBOX_PAUSE: ev.kind = EV_JOB_PAUSE; break;
    case INBOX_RESUME: ev.kind = EV_JOB_RESUME; break;
    case INBOX_RETRY: ev.kind = EV_JOB_RETRY; break;
    case INBOX_DRAIN: handle_drain(c, item); return;
    case INBOX_QUEUE: handle_queue(c, item); return;
    case INBOX_STORED: ev.kind = EV_RANK_STORED; break;
    case INBOX_COMMITTED: ev.kind = EV_COMMITTED; break;
    }
    actions_run_request(c, &ev, item->request);
}

/* A deposed controller drops the items that it has taken; requests get a reply. */
static void take_turn(struct controller *c, struct inbox_item **items, size_t n) {
    int64_t place_ms = clock_mono_ms() + PLACE_MS;
    attach_write_rows(c, items, n);
    for (size_t i = 0; i < n; i++) {
        c->more = i + 1 < n && clock_mono_ms() < place_ms;
        if (!c->more)
            place_ms = clock_mono_ms() + PLACE_MS;
        if (!leadership_over(c))
            handle(c, items[i]);
        else if (items[i]->request)
            loop_request_reply(items[i]->request, ST_UNAVAILABLE, NULL, "this controller no longer leads");
        inbox_item_free(items[i]);
    }
    place(c); /* the last item may have been no event of the scheduler, or the last placing was cut off */
}

static void lead(struct controller *c) {
    int64_t next_tick = clock_mono_ms();
    while (!leadership_over(c)) {
        struct inbox_item *items[EVENTS_PER_TURN];
        atomic_fetch_add(&c->beats, 1);
        size_t n = 0;
        /* A placing that was cut off goes on after the items that have arrived meanwhile. */
        struct inbox_item *item = inbox_take(c->inbox, scheduler_needs_placing(c->scheduler) ? 0 : next_tick);
        int64_t begun = clock_mono_ns();
        for (; item; item = n < EVENTS_PER_TURN ? inbox_take(c->inbox, 0) : NULL)
            items[n++] = item;
        take_turn(c, items, n);
        if (!leadership_over(c))
            detach_ended_streams(c);
        if (!leadership_over(c) && atomic_load(&c->unknown_epoch) > 0)
            leadership_raise_epoch(c);
        if (!leadership_over(c))
            leadership_skip_ids(c);
        if (!leadership_over(c) && clock_mono_ms() >= next_tick) {
            tick(c);
            next_tick = clock_mono_ms() + SCHEDULER_TICK_MS;
        }
        for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
            atomic_store(&c->waiting[k], scheduler_waiting_priority(c->scheduler, (enum scheduler_slot)k));
            for (int gang = 0; gang < 2; gang++)
                atomic_store(&c->offered[k][gang], scheduler_offered(c->scheduler, (enum scheduler_slot)k, gang));
        }
        const int64_t took_ns = clock_mono_ns() - begun;
        atomic_fetch_add(&c->busy_ns, took_ns);
        histogram_add(&c->times.turns, took_ns);
    }
}

void *controller_loop(void *arg) {
    struct controller *c = arg;
    store_reserve(c->store); /* slow reads of clients must not delay a move */
    if (leadership_take(c))
        lead(c);
    inbox_close(c->inbox, "this controller no longer leads");
    leadership_drop(c);
    return NULL;
}
