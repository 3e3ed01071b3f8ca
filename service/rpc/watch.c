#include "service/rpc/watch.h"

#include "base/clock.h"
#include "service/controller/controller.h"
#include "service/controller/row_state.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/name.h"
#include "service/store/metric.h"

#include <math.h>
#include <stdlib.h>

/* Events read at a time: a new watcher of a long job gets its history in pages. */
#define WATCH_PAGE 100
/* Ten progress lines a second are as fast as anyone reads. */
#define WATCH_PROGRESS_MS 100

struct watch {
    struct wake_sub sub;
    int64_t job, seen; /* the last event that was sent */
    int64_t steps;
    int64_t progress_ms;
    struct progress_values told;
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
    struct watch *w = calloc(1, sizeof *w);
    if (!w) {
        rpc_finish(call, ST_RESOURCE_EXHAUSTED, "no memory for a watcher");
        return NULL;
    }
    *w = (struct watch){ .job = job, .seen = in->after_event, .told = { .step = -1 } };
    w->sub = (struct wake_sub){ .job = job, .wake = wake, .ctx = call };
    rpc_set_user(call, w);
    wake_subscribe(controller_wakes(c), &w->sub);
    return w;
}

/* *ret_sent: false when the peer must read first, or is gone. */
static status_t send_events(struct rpc_call *call, struct watch *w, const struct store_event *rows, size_t n,
                            bool *ret_sent, struct err *e) {
    *ret_sent = true;
    for (size_t i = 0; i < n; i++) {
        CLEANUP(arena_freep) struct arena *a = arena_new();
        Trainyard__V1__WatchJobResponse out = TRAINYARD__V1__WATCH_JOB_RESPONSE__INIT;
        out.update_case = TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_EVENT;
        out.event = convert_event(a, &rows[i]);
        TRY(arena_status(a, e));
        *ret_sent = rpc_send(call, &out.base) == RPC_SENT;
        if (!*ret_sent)
            return ST_OK;
        w->seen = rows[i].number;
    }
    return ST_OK;
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
        w->told = now;
        w->progress_ms = clock_mono_ms() + WATCH_PROGRESS_MS;
    }
    return sent;
}

static enum rpc_sent send_news(struct rpc_call *call, struct controller *c, struct watch *w) {
    struct progress_values now;
    if (!progress_get(controller_progress(c), w->job, &now) || now.step == w->told.step ||
        clock_mono_ms() < w->progress_ms)
        return RPC_SENT;
    return send_progress(call, w, now);
}

/* A job that has ended is out of the progress table: its rows tell the last step. */
static enum rpc_sent send_last_step(struct rpc_call *call, struct controller *c, struct watch *w, int64_t step) {
    static const char *const names[] = { "loss", "validation_loss", "tokens_per_second", "samples_per_second" };
    double values[4];
    if (step == 0 || step == w->told.step ||
        store_metric_last(controller_store(c), w->job, names, 4, values, NULL) != ST_OK)
        return RPC_SENT;
    return send_progress(call, w,
                         (struct progress_values){ .step = step,
                                                   .loss = values[0],
                                                   .validation_loss = values[1],
                                                   .tokens_per_second = values[2],
                                                   .samples_per_second = values[3] });
}

/* The job has ended and every event of it is sent: the job itself is the last word. */
static void send_last(struct rpc_call *call, struct controller *c, struct watch *w, const struct store_job *row) {
    if (send_last_step(call, c, w, row->step) != RPC_SENT)
        return; /* `writable` comes back here */
    CLEANUP(arena_freep) struct arena *a = arena_new();
    Trainyard__V1__WatchJobResponse out = TRAINYARD__V1__WATCH_JOB_RESPONSE__INIT;
    out.job = convert_job(a, row);
    struct err e;
    if (arena_status(a, &e) != ST_OK)
        rpc_finish(call, ST_RESOURCE_EXHAUSTED, e.msg);
    else if (rpc_send(call, &out.base) != RPC_FULL)
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
    /* The job before its events: what ended it is then among them. */
    status_t st = store_job_get(controller_store(c), m, w->job, &row, &e);
    while (st == ST_OK && n == WATCH_PAGE) {
        st = store_event_list(controller_store(c), m, w->job, w->seen, WATCH_PAGE, &events, &n, &e);
        bool sent = false;
        if (st == ST_OK)
            st = send_events(call, w, events, n, &sent, &e);
        if (st == ST_OK && !sent)
            return; /* `writable` comes back here, or `done` */
    }
    if (st != ST_OK) {
        if (st == ST_NOT_FOUND)
            rpc_set_reason(call, "JOB_NOT_FOUND");
        rpc_finish(call, st, e.msg);
        return;
    }
    w->steps = row.steps;
    if (row_state_final(row.state))
        send_last(call, c, w, &row);
    else
        (void)send_news(call, c, w); /* what is not sent now comes with the next wake */
}

void watch_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    struct watch *w = rpc_user(call);
    if (!w)
        return;
    wake_unsubscribe(controller_wakes(rpc_service(call)), &w->sub);
    free(w);
}
