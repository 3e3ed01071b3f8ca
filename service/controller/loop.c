#include "base/limits.h"
#include "base/log.h"
#include "service/controller/state.h"
#include "service/store/executor.h"
#include "service/store/job.h"

#include <stdlib.h>

/* The lock's connection is looked at this often. */
#define LEADER_CHECK_MS 1000
/* Heartbeat times are written for people only. */
#define HEARD_WRITE_MS 5000
/* A long queue takes a while to look through, and clients that repeat themselves ask for it: not more often. */
#define FIND_MS 5000

static void note_heard(void *ctx, const char *executor, int64_t heard_ms) {
    struct controller *c = ctx;
    struct scheduler_event ev = { .kind = EV_EXECUTOR_HEARD, .executor = executor, .heard_ms = heard_ms };
    status_ignore(scheduler_step(c->scheduler, &ev, clock_mono_ms(), &c->actions, NULL)); /* never refused */
}

/* For people only: a write that fails is made good by the next one. */
static void write_heard(struct controller *c) {
    int64_t now_us = clock_wall_us(), now_ms = clock_mono_ms();
    if (now_ms < c->next_heard_ms)
        return;
    c->next_heard_ms = now_ms + HEARD_WRITE_MS;
    size_t cap = (size_t)dispatch_count(c->dispatch);
    CLEANUP(freep) struct dispatch_heard *heard = calloc(cap + 1, sizeof *heard);
    CLEANUP(freep) const char **ids = calloc(cap + 1, sizeof *ids);
    CLEANUP(freep) int64_t *times_us = calloc(cap + 1, sizeof *times_us);
    if (!heard || !ids || !times_us)
        return;
    size_t n = dispatch_list(c->dispatch, heard, cap);
    for (size_t i = 0; i < n; i++) {
        ids[i] = heard[i].executor;
        times_us[i] = now_us - (now_ms - heard[i].heard_ms) * 1000;
    }
    if (n > 0)
        status_ignore(store_executor_heard(c->store, c->own_epoch, ids, times_us, n, NULL));
}

/* Only this thread moves a job out of QUEUED, so that a row which says QUEUED is true until the next event. */
static void find_submitted(struct controller *c) {
    if (clock_mono_ms() < c->next_find_ms || !atomic_exchange(&c->rows_unsure, false))
        return;
    c->next_find_ms = clock_mono_ms() + FIND_MS;
    struct store_job_filter filter = { .state = STORE_JOB_QUEUED, .queue = "", .limit = LIMIT_PAGE_SIZE };
    size_t n;
    do {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_job *rows;
        if (store_job_list(c->store, m, &filter, &rows, &n, NULL) != ST_OK) {
            atomic_store(&c->rows_unsure, true); /* at the next tick */
            return;
        }
        for (size_t i = 0; i < n; i++) {
            struct scheduler_job_row row = scheduler_row_of(&rows[i]);
            filter.before = row.job;
            act_on(c, &(struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
        }
    } while (n == LIMIT_PAGE_SIZE && !lead_over(c));
}

/* Everything that arrived has been told before: leases may be judged. */
static void tick(struct controller *c) {
    dispatch_take_heard(c->dispatch, note_heard, c);
    act_on(c, &(struct scheduler_event){ .kind = EV_TICK });
    find_submitted(c);
    write_heard(c);
    tell_starts(c);
    wake_flush(c->wakes);
    pthread_mutex_lock(&c->lock);
    c->counts = scheduler_counts(c->scheduler);
    pthread_mutex_unlock(&c->lock);
    if (clock_mono_ms() >= c->next_check_ms) {
        lead_keep(c);
        c->next_check_ms = clock_mono_ms() + LEADER_CHECK_MS;
    }
}

/* A question that was answered before: its move is stored, only the answer was lost. */
static bool answered_before(struct controller *c, struct ask *ask) {
    if (!ask || !ask_request_id(ask)[0])
        return false;
    struct err e = { "" };
    int64_t job;
    int tries = 0;
    status_t st;
    do
        st = store_request_find(c->store, ask_request_id(ask), &job, &e);
    while (st != ST_NOT_FOUND && write_judge(c, st, &e, &tries) == WRITE_AGAIN);
    if (st == ST_OK)
        ask_answer(ask, ST_OK, NULL, "");
    return st == ST_OK;
}

/* A write of the loop's that was refused: by its guard, or because this controller leads no more. */
static void answer_refused(struct controller *c, struct ask *ask, status_t st, const char *reason,
                           const struct err *e) {
    if (lead_over(c))
        ask_answer(ask, ST_UNAVAILABLE, NULL, "this controller leads no more");
    else
        ask_answer(ask, st,
                   st == ST_NOT_FOUND             ? "JOB_NOT_FOUND"
                   : st == ST_FAILED_PRECONDITION ? reason
                                                  : NULL,
                   e->msg);
}

/* A retry's row moves before the scheduler is told. Only the store can judge, under its locks, whether what the job
 * would begin with is still there, and a refusal must not leave the scheduler with a job that waits. Of a row that is
 * not FAILED when it is read, the scheduler refuses the retry. */
static bool retry_row(struct controller *c, struct inbox_item *item) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job job;
    struct err e = { "" };
    int tries = 0;
    bool origin_gone = false;
    status_t st;
    do
        st = store_job_get(c->store, m, item->job, &job, &e);
    while (write_judge(c, st, &e, &tries) == WRITE_AGAIN);
    if (st == ST_OK && job.state == STORE_JOB_FAILED) {
        struct request_id id = act_request(c, item->ask);
        struct store_job_move move = { .request_id = id.text,
                                       .job = job.id,
                                       .attempt = job.attempt,
                                       .from = STORE_JOB_FAILED,
                                       .to = STORE_JOB_QUEUED,
                                       .reason = "retried by its user" };
        tries = 0;
        do
            st = store_job_retry(c->store, c->own_epoch, &move, &origin_gone, &e);
        while (write_judge(c, st, &e, &tries) == WRITE_AGAIN);
    }
    if (st == ST_OK)
        item->row = scheduler_row_of(&job);
    else
        answer_refused(c, item->ask, st, origin_gone ? "JOB_ORIGIN_GONE" : "JOB_NOT_FAILED", &e);
    return st == ST_OK;
}

static void explain(struct controller *c, const struct inbox_item *item) {
    struct scheduler_explanation *x = malloc(sizeof *x);
    if (x)
        scheduler_explain(c->scheduler, item->job, clock_mono_ms(), x);
    ask_explained(item->ask, x);
}

/* The row has changed before the scheduler is told. */
static void tell_drain(struct controller *c, const struct inbox_item *item) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_executor row;
    struct err e = { "" };
    int tries = 0;
    status_t st;
    do
        st = store_executor_get(c->store, m, item->executor, &row, &e);
    while (write_judge(c, st, &e, &tries) == WRITE_AGAIN);
    if (st == ST_OK)
        act_ask(c,
                &(struct scheduler_event){
                    .kind = EV_EXECUTOR_DRAIN, .executor = item->executor, .drain = scheduler_drain_of(&row) },
                item->ask);
    else
        answer_refused(c, item->ask, st, NULL, &e);
}

static void handle(struct controller *c, struct inbox_item *item) {
    if (answered_before(c, item->ask) || (item->kind == INBOX_RETRY && !retry_row(c, item)))
        return;
    struct scheduler_event ev = { .job = item->job,
                                  .attempt = item->attempt,
                                  .rank = item->rank,
                                  .sequence = item->sequence,
                                  .step = item->step,
                                  .final = item->final,
                                  .row = &item->row };
    switch (item->kind) {
    case INBOX_AGENT: tell_agent(c, item); return;
    case INBOX_EXPLAIN: explain(c, item); return;
    case INBOX_SUBMITTED: ev.kind = EV_JOB_SUBMITTED; break;
    case INBOX_CANCEL: ev.kind = EV_JOB_CANCEL; break;
    case INBOX_PAUSE: ev.kind = EV_JOB_PAUSE; break;
    case INBOX_RESUME: ev.kind = EV_JOB_RESUME; break;
    case INBOX_RETRY: ev.kind = EV_JOB_RETRY; break;
    case INBOX_DRAIN: tell_drain(c, item); return;
    case INBOX_STORED: ev.kind = EV_RANK_STORED; break;
    case INBOX_COMMITTED: ev.kind = EV_COMMITTED; break;
    }
    act_ask(c, &ev, item->ask);
}

/* What a deposed controller has taken is dropped; whoever asked is told. */
static void take_turn(struct controller *c, struct inbox_item **items, size_t n) {
    hello_store(c, items, n);
    for (size_t i = 0; i < n; i++) {
        if (!lead_over(c))
            handle(c, items[i]);
        else if (items[i]->ask)
            ask_answer(items[i]->ask, ST_UNAVAILABLE, NULL, "this controller leads no more");
        inbox_item_free(items[i]);
    }
}

static void lead(struct controller *c) {
    int64_t next_tick = clock_mono_ms();
    while (!lead_over(c)) {
        struct inbox_item *items[EVENTS_PER_TURN];
        size_t n = 0;
        struct inbox_item *item = inbox_take(c->inbox, next_tick);
        int64_t begun = clock_mono_ns();
        for (; item; item = n < EVENTS_PER_TURN ? inbox_take(c->inbox, 0) : NULL)
            items[n++] = item;
        take_turn(c, items, n);
        if (!lead_over(c) && clock_mono_ms() >= next_tick) {
            tick(c);
            next_tick = clock_mono_ms() + SCHEDULER_TICK_MS;
        }
        for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
            atomic_store(&c->waiting[k], scheduler_waiting_priority(c->scheduler, (enum scheduler_slot)k));
        atomic_fetch_add(&c->busy_ns, clock_mono_ns() - begun);
    }
}

void *controller_loop(void *arg) {
    struct controller *c = arg;
    if (lead_take(c))
        lead(c);
    lead_drop(c);
    return NULL;
}
