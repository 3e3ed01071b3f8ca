/* WatchJob: a server stream with a job's events, its progress, and finally the job itself.
 *
 * The stream has no thread. The first `work` event registers a job watcher; from then on each change of the job wakes
 * the call, and `work` runs again on a worker thread. Each run reads the job's row and sends the events after the last
 * one that was sent, in pages. The row is read before the events: if it has a final state, the event of that state is
 * among the events read. Then the newest progress is sent, at most once per WATCH_PROGRESS_MS.
 *
 * If the queue of the call is full, the run stops and `writable` wakes the call again; `seen` makes the next run
 * continue after the last event that was sent. Events wait in the database. After the final state the last step and the
 * job are sent, and the stream ends with OK. On a standby, or when the lead is lost, the stream of a job that has not
 * ended fails after the events that are stored. */
#include "service/rpc/watch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "service/controller/controller.h"
#include "service/controller/row_state.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/name.h"
#include "service/rpc/services.h"
#include "service/store/metric.h"

#include <math.h>
#include <stdlib.h>

/* The number of events per read: a new watcher of a long job gets its history in pages. */
#define WATCH_PAGE 100
/* Ten progress lines per second are as fast as a person reads. */
#define WATCH_PROGRESS_MS 100

struct watch {
    struct job_watcher sub;
    int64_t job, seen; /* the last event that was sent */
    int64_t steps;
    int64_t progress_ms;
    struct progress_values sent;
};

static void wake(void *call) { rpc_wake(call); }

static struct watch *begin(struct rpc_call *call, struct controller *c) {
    const Trainyard__V1__WatchJobRequest *in = (const void *)rpc_request(call);
    struct err e;
    int64_t job;
    if (name_job(in->name, &job, &e) != ST_OK) {
        rpc_finish(call, ST_INVALID_ARGUMENT, e.msg);
        return NULL;
    }
    struct watch *w = alloc_zeroed(1, sizeof *w);
    *w = (struct watch){ .job = job, .seen = in->after_event, .sent = { .step = -1 } };
    w->sub = (struct job_watcher){ .job = job, .wake = wake, .ctx = call };
    rpc_set_user(call, w);
    job_watchers_add(controller_job_watchers(c), &w->sub);
    return w;
}

/* False: the peer must read first, or the call is over. */
static bool send_events(struct rpc_call *call, struct watch *w, const struct store_event *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        CLEANUP(arena_freep) struct arena *a = arena_new();
        Trainyard__V1__WatchJobResponse out = TRAINYARD__V1__WATCH_JOB_RESPONSE__INIT;
        out.update_case = TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_EVENT;
        out.event = convert_event(a, &rows[i]);
        if (rpc_send(call, &out.base) != RPC_SENT)
            return false;
        w->seen = rows[i].number;
    }
    return true;
}

static void put_optional(Trainyard__V1__Progress *p, const struct progress_values *v) {
    if (!isnan(v->loss)) {
        p->_loss_case = TRAINYARD__V1__PROGRESS___LOSS_LOSS;
        p->loss = v->loss;
    }
    if (!isnan(v->validation_loss)) {
        p->_validation_loss_case = TRAINYARD__V1__PROGRESS___VALIDATION_LOSS_VALIDATION_LOSS;
        p->validation_loss = v->validation_loss;
    }
    if (!isnan(v->tokens_per_second)) {
        p->_tokens_per_second_case = TRAINYARD__V1__PROGRESS___TOKENS_PER_SECOND_TOKENS_PER_SECOND;
        p->tokens_per_second = v->tokens_per_second;
    }
    if (!isnan(v->samples_per_second)) {
        p->_samples_per_second_case = TRAINYARD__V1__PROGRESS___SAMPLES_PER_SECOND_SAMPLES_PER_SECOND;
        p->samples_per_second = v->samples_per_second;
    }
}

static enum rpc_sent send_progress(struct rpc_call *call, struct watch *w, struct progress_values now) {
    Trainyard__V1__Progress progress = TRAINYARD__V1__PROGRESS__INIT;
    progress.step = now.step;
    progress.steps = w->steps;
    put_optional(&progress, &now);
    Trainyard__V1__WatchJobResponse out = TRAINYARD__V1__WATCH_JOB_RESPONSE__INIT;
    out.update_case = TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_PROGRESS;
    out.progress = &progress;
    enum rpc_sent sent = rpc_send(call, &out.base);
    if (sent == RPC_SENT) {
        w->sent = now;
        w->progress_ms = clock_mono_ms() + WATCH_PROGRESS_MS;
    }
    return sent;
}

static enum rpc_sent send_news(struct rpc_call *call, struct controller *c, struct watch *w) {
    struct progress_values now;
    if (!progress_get(controller_progress(c), w->job, &now) || now.step == w->sent.step)
        return RPC_SENT;
    if (clock_mono_ms() < w->progress_ms) { /* no further step may follow that would wake the call */
        job_watchers_wake_later(controller_job_watchers(c), &w->sub);
        return RPC_SENT;
    }
    return send_progress(call, w, now);
}

/* The progress table no longer contains a job that has ended: the last step comes from the rows. */
static enum rpc_sent send_last_step(struct rpc_call *call, struct controller *c, struct watch *w, int64_t step) {
    static const char *const names[] = { "loss", "validation_loss", "tokens_per_second", "samples_per_second" };
    double values[4];
    if (step == 0 || step == w->sent.step ||
        store_metric_last(controller_store(c), w->job, names, 4, values, NULL) != ST_OK)
        return RPC_SENT;
    return send_progress(call, w,
                         (struct progress_values){ .step = step,
                                                   .loss = values[0],
                                                   .validation_loss = values[1],
                                                   .tokens_per_second = values[2],
                                                   .samples_per_second = values[3] });
}

/* The job has ended and all its events are sent: the job itself is the last message. */
static void send_last(struct rpc_call *call, struct controller *c, struct watch *w, const struct store_job *row) {
    if (send_last_step(call, c, w, row->step) != RPC_SENT)
        return; /* `writable` wakes the call again */
    CLEANUP(arena_freep) struct arena *a = arena_new();
    Trainyard__V1__WatchJobResponse out = TRAINYARD__V1__WATCH_JOB_RESPONSE__INIT;
    out.job = convert_job(a, row);
    if (rpc_send(call, &out.base) != RPC_FULL)
        rpc_finish(call, ST_OK, NULL);
}

void watch_work(struct rpc_call *call) {
    struct controller *c = rpc_service(call);
    struct watch *w = rpc_user(call);
    if (!w && !(w = begin(call, c)))
        return;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct err e;
    struct store_job row;
    struct store_event *events;
    size_t n = WATCH_PAGE;
    /* Read the job before its events: the event of a final state is then among them. */
    status_t st = store_job_get(controller_store(c), m, w->job, &row, &e);
    while (st == ST_OK && n == WATCH_PAGE) {
        st = store_event_list(controller_store(c), m, w->job, w->seen, WATCH_PAGE, &events, &n, &e);
        if (st == ST_OK && !send_events(call, w, events, n))
            return; /* `writable` wakes the call again, or `done` follows */
    }
    if (st != ST_OK) {
        rpc_finish(call, rpc_found(call, st, "JOB_NOT_FOUND"), e.msg);
        return;
    }
    w->steps = row.steps;
    if (row_state_final(row.state))
        send_last(call, c, w, &row);
    else if (rpc_may_follow(call, c))
        (void)send_news(call, c, w); /* without room in the queue, `writable` wakes the call again */
}

void watch_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    struct watch *w = rpc_user(call);
    if (!w)
        return;
    job_watchers_remove(controller_job_watchers(rpc_service(call)), &w->sub);
    free(w);
}
