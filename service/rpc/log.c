#include "service/store/log.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "service/controller/row_state.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/name.h"
#include "service/rpc/services.h"
#include "service/store/job.h"

#include <errno.h>
#include <stdlib.h>
#include <trainyard/v1/log.pb-c.h>

#define US_PER_S 1000000LL

struct tail {
    struct job_watcher sub;
    struct store_log_query query;
    bool follow;
};

static void wake(void *call) { rpc_wake(call); }

static status_t read_cursor(const char *text, int64_t *ret, struct err *e) {
    char *end;
    errno = 0;
    *ret = *text ? strtoll(text, &end, 10) : 0;
    if (*text && (errno || *end || *ret < 0 || *text < '0' || *text > '9'))
        return err_set(e, ST_INVALID_ARGUMENT, "cursor: '%.40s' is not a cursor of this service", text);
    return ST_OK;
}

static status_t read_request(const Trainyard__V1__TailLogsRequest *in, struct store_log_query *ret, struct err *e) {
    bool one_rank = in->_rank_case == TRAINYARD__V1__TAIL_LOGS_REQUEST___RANK_RANK;
    bool one_attempt = in->_attempt_case == TRAINYARD__V1__TAIL_LOGS_REQUEST___ATTEMPT_ATTEMPT;
    TRY(name_job(in->job, &ret->job, e));
    if ((one_rank && in->rank < 0) || (one_attempt && in->attempt < 1))
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %d is none", one_rank && in->rank < 0 ? "rank" : "attempt",
                       (int)(one_rank && in->rank < 0 ? in->rank : in->attempt));
    ret->rank = one_rank ? in->rank : -1;
    ret->attempt = one_attempt ? in->attempt : -1;
    ret->limit = LIMIT_PAGE_SIZE;
    if (in->last_lines < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "last_lines: %d is negative", (int)in->last_lines);
    if (in->last_lines > 0 && in->from_time)
        return err_set(e, ST_INVALID_ARGUMENT, "last_lines and from_time are both given: give one of them");
    ret->last_lines = in->last_lines;
    ret->from_time_us = in->from_time ? in->from_time->seconds * US_PER_S + in->from_time->nanos / 1000 : 0;
    return read_cursor(in->cursor, &ret->cursor, e);
}

/* NULL: the request is refused, and the call is finished. */
static struct tail *begin(struct rpc_call *call, struct controller *c) {
    const Trainyard__V1__TailLogsRequest *in = (const void *)rpc_request(call);
    struct err e;
    struct store_log_query query;
    status_t st = read_request(in, &query, &e);
    if (st != ST_OK) {
        rpc_finish(call, st, e.msg);
        return NULL;
    }
    struct tail *t = alloc_zeroed(1, sizeof *t);
    *t = (struct tail){ .query = query, .follow = in->follow };
    t->sub = (struct job_watcher){ .job = query.job, .wake = wake, .ctx = call };
    rpc_set_user(call, t);
    job_watchers_add(controller_job_watchers(c), &t->sub);
    return t;
}

static void convert_line(struct arena *a, const struct store_log_line *row, Trainyard__V1__LogLine **ret) {
    Trainyard__V1__LogLine *line = *ret = arena_message(a, &trainyard__v1__log_line__descriptor);
    line->attempt = row->attempt;
    line->rank = row->rank;
    line->time = convert_timestamp(a, row->time_us);
    line->stream = (char *)row->stream;
    line->text = (char *)row->text;
}

static bool send_page(struct rpc_call *call, const struct store_log_line *rows, size_t n, int64_t cursor) {
    CLEANUP(arena_freep) struct arena *a = arena_new();
    Trainyard__V1__TailLogsResponse out = TRAINYARD__V1__TAIL_LOGS_RESPONSE__INIT;
    out.cursor = arena_printf(a, "%lld", (long long)cursor);
    out.lines = arena_alloc(a, n, sizeof *out.lines);
    out.n_lines = n;
    for (size_t i = 0; i < out.n_lines; i++)
        convert_line(a, &rows[i], &out.lines[i]);
    return rpc_send(call, &out.base) == RPC_SENT;
}

/* Sends all lines that are stored now. *ret_sent is false if the peer must read first; `writable` then wakes the
 * call. */
static status_t send_stored(struct rpc_call *call, struct store *s, struct tail *t, bool *ret_sent, struct err *e) {
    *ret_sent = true;
    for (;;) {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_log_line *rows;
        size_t n;
        int64_t cursor;
        TRY(store_log_list(s, m, &t->query, &rows, &n, &cursor, e));
        if (n == 0)
            return ST_OK;
        *ret_sent = send_page(call, rows, n, cursor);
        if (!*ret_sent)
            return ST_OK;
        t->query.cursor = cursor;
    }
}

static void log_work(struct rpc_call *call) {
    struct controller *c = rpc_service(call);
    struct tail *t = rpc_user(call);
    if (!t && !(t = begin(call, c)))
        return;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct err e;
    struct store_job job;
    bool sent = true;
    /* Read the job before its lines: once the job has ended, all its lines are stored. */
    status_t st = rpc_found(call, store_job_get(controller_store(c), m, t->query.job, &job, &e), "JOB_NOT_FOUND");
    if (st == ST_OK)
        st = send_stored(call, controller_store(c), t, &sent, &e);
    if (st != ST_OK)
        rpc_finish(call, st, e.msg);
    else if (sent && (!t->follow || row_state_final(job.state)))
        rpc_finish(call, ST_OK, NULL);
    else if (sent)
        (void)rpc_may_follow(call, c);
}

static void log_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    struct tail *t = rpc_user(call);
    if (!t)
        return;
    job_watchers_remove(controller_job_watchers(rpc_service(call)), &t->sub);
    free(t);
}

static const struct rpc_method methods[] = {
    { .name = "TailLogs",
      .kind = RPC_SERVER_STREAM,
      .events = { .work = log_work, .writable = rpc_wake, .done = log_done } },
};

const struct rpc_service rpc_log_service = { &trainyard__v1__log_service__descriptor, methods,
                                             sizeof methods / sizeof *methods };
