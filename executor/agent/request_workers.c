/* A request is a slot of the list with a worker, a time limit and the id that the controller gave it. Its records are
 * forwarded as they come. When the worker has ended and its pipes are empty, the last output is sent and the slot is
 * free. A worker whose records the stream does not take is killed. */
#include "executor/agent/request_workers.h"

#include "base/alloc.h"
#include "executor/agent/worker_launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct request {
    struct request_workers *list;
    int64_t id;
    struct worker_process *process;
    struct reactor_timer limit;
    const char *too_long;
    void (*ended)(void *ctx, int64_t id);
    void *ctx;
    bool has_reported; /* the final report has arrived */
    status_t status;
    char why[240]; /* the message of its final report */
};

struct request_workers {
    const struct host *host;
    struct control_stream *stream;
    const struct request_kind *kind;
    struct request *all[REQUEST_WORKERS_MAX];
};

static void request_free(struct request *r) {
    struct request_workers *ws = r->list;
    for (int i = 0; i < REQUEST_WORKERS_MAX; i++)
        if (ws->all[i] == r)
            ws->all[i] = NULL;
    reactor_timer_cancel(ws->host->loop, &r->limit);
    worker_process_close(r->process);
    if (r->ended)
        r->ended(r->ctx, r->id);
    free(r);
}

/* ---- from a worker ---- */

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct request *r = ctx;
    const struct request_kind *kind = r->list->kind;
    if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_END) {
        r->has_reported = true;
        r->status = kind->status_of(record->end->cause);
        snprintf(r->why, sizeof r->why, "%s", record->end->message);
    } else if (!kind->forward(r->list->stream, r->id, record)) {
        worker_process_kill(r->process, kind->unread);
    }
}

static void on_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static void on_ended(void *ctx, const struct exit_status *exit, bool drained) {
    struct request *r = ctx;
    const struct request_kind *kind = r->list->kind;
    if (!drained)
        return;
    if (!r->has_reported) {
        char sentence[160];
        r->status = kind->status_of(exit_status_cause(exit));
        r->status = r->status == ST_OK ? ST_INTERNAL : r->status;
        exit_status_sentence(exit, worker_process_killed_because(r->process), sentence, sizeof sentence);
        snprintf(r->why, sizeof r->why, "%s %s", kind->worker, sentence);
    }
    kind->send_last(r->list->stream, r->id, r->status, r->why);
    request_free(r);
}

static void limit_fire(void *ctx) {
    struct request *r = ctx;
    worker_process_kill(r->process, r->too_long);
}

/* ---- from the controller ---- */

static struct request *request_find(struct request_workers *ws, int64_t id) {
    for (int i = 0; i < ws->kind->max; i++)
        if (ws->all[i] && ws->all[i]->id == id)
            return ws->all[i];
    return NULL;
}

static status_t request_begin(struct request_workers *ws, const struct request_order *order, struct request **ret,
                              struct err *e) {
    int free_place = 0;
    while (free_place < ws->kind->max && ws->all[free_place])
        free_place++;
    if (free_place == ws->kind->max)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%s", ws->kind->full);
    struct request *r = *ret = ws->all[free_place] = alloc_zeroed(1, sizeof *r);
    *r = (struct request){
        .list = ws, .id = order->id, .too_long = order->too_long, .ended = order->ended, .ctx = order->ctx
    };
    r->limit = (struct reactor_timer){ .fire = limit_fire, .ctx = r };
    const struct worker_process_owner owner = {
        .ctx = r, .record = on_record, .spooled = on_spooled, .ended = on_ended
    };
    char group[40];
    static int64_t number;
    snprintf(group, sizeof group, "request-%" PRId64, ++number);
    TRY(worker_launch(ws->host,
                      &(struct worker_launch){ .spec = order->spec, .threads = order->threads, .group = group }, &owner,
                      &r->process, e));
    return worker_process_send(r->process, order->command, e);
}

void request_workers_start(struct request_workers *ws, const struct request_order *order) {
    struct request *r = NULL;
    struct err why;
    if (request_find(ws, order->id))
        return;
    status_t st = request_begin(ws, order, &r, &why);
    if (st == ST_OK) {
        reactor_timer_set(ws->host->loop, &r->limit, order->limit_s * 1000L);
        return;
    }
    ws->kind->send_last(ws->stream, order->id, st, why.msg);
    if (r)
        request_free(r);
    else if (order->ended)
        order->ended(order->ctx, order->id);
}

void request_workers_refuse(struct request_workers *ws, int64_t id, const char *why) {
    ws->kind->send_last(ws->stream, id, ST_INVALID_ARGUMENT, why);
}

struct control_stream *request_workers_stream(const struct request_workers *ws) {
    return ws->stream;
}

void request_workers_stop(struct request_workers *ws, int64_t id) {
    struct request *r = request_find(ws, id);
    if (r)
        worker_process_kill(r->process, "was stopped");
}

void request_workers_stop_all(struct request_workers *ws) {
    for (int i = 0; ws && i < REQUEST_WORKERS_MAX; i++)
        if (ws->all[i])
            worker_process_kill(ws->all[i]->process, "was stopped");
}

/* ---- from start to end ---- */

struct request_workers *request_workers_new(const struct host *host, struct control_stream *stream,
                                            const struct request_kind *kind) {
    struct request_workers *ws = alloc_zeroed(1, sizeof *ws);
    *ws = (struct request_workers){ .host = host, .stream = stream, .kind = kind };
    return ws;
}

void request_workers_free(struct request_workers *ws) {
    for (int i = 0; ws && i < REQUEST_WORKERS_MAX; i++)
        if (ws->all[i])
            request_free(ws->all[i]);
    free(ws);
}
