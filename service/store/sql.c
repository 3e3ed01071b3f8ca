/* Connections and statements over libpq.
 *
 * The connection is non-blocking: pump writes what libpq has buffered and reads what arrives, in one poll loop, so that
 * neither side waits for the other. The loop ends when a result is complete, at the deadline (the statement's timeout
 * in the server plus ANSWER_EXTRA_MS), or when the watch cancels the statement. After a missed deadline the connection
 * is closed, because a late answer would be taken for the answer to the next statement.
 *
 * A statement is prepared once on each connection; `prepared` remembers which ones are. A pipeline sends many prepared
 * statements without waiting, and reads the results of all of them at its end. */
#include "service/store/sql.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "service/store/store.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How much longer than the server's timeout this side waits for an answer. */
#define ANSWER_EXTRA_MS 3000

#define QUOTE_(x) #x
#define QUOTE(x)  QUOTE_(x)

/* ---- failures ---- */

static status_t status_of_sqlstate(const char *state) {
    static const struct {
        const char *prefix;
        status_t status;
    } table[] = {
        { "40001", ST_ABORTED },                                        /* serialisation */
        { "40P01", ST_ABORTED },                                        /* deadlock */
        { "55P03", ST_ABORTED },                                        /* lock not available */
        { "57014", ST_DEADLINE_EXCEEDED },                              /* statement timeout */
        { "57P", ST_UNAVAILABLE },                                      /* shutting down, starting up, terminated */
        { "08", ST_UNAVAILABLE },          { "25006", ST_UNAVAILABLE }, /* read only: a standby */
        { "25", ST_UNAVAILABLE },    /* the session's transaction is not in the expected state: idle for too long */
        { "53300", ST_UNAVAILABLE }, /* too many connections */
        { "53", ST_RESOURCE_EXHAUSTED },   { "58", ST_UNAVAILABLE }, /* an error of the server's system, such as I/O */
        { "XX", ST_UNAVAILABLE },    /* an internal error of the server, or damaged data */
        { "42501", ST_UNAVAILABLE }, /* a privilege is missing, until somebody grants it again */
        { "26000", ST_UNAVAILABLE }, /* a prepared statement that the session has lost */
        { "42P05", ST_UNAVAILABLE }, /* one that it has already: both if a pooler exchanges sessions */
        { "23505", ST_ALREADY_EXISTS },    { "23", ST_FAILED_PRECONDITION }, { "22", ST_INVALID_ARGUMENT },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strncmp(state, table[i].prefix, strlen(table[i].prefix)) == 0)
            return table[i].status;
    return ST_INTERNAL;
}

/* libpq's messages may have several lines. The first one names the failure. */
static int first_line(const char *text) { return (int)strcspn(text, "\n"); }

static status_t fail_connection(struct connection *c, const char *what, struct err *e) {
    const char *text = PQerrorMessage(c->pg);
    return err_set(e, ST_UNAVAILABLE, "PostgreSQL: %s: %.*s", what, first_line(text), text);
}

/* A migration has changed the columns that a prepared statement returns. The SQLSTATE is that of any feature that the
 * server lacks; its function tells them apart. */
static bool is_stale_plan(const PGresult *r, const char *state) {
    const char *function = PQresultErrorField(r, PG_DIAG_SOURCE_FUNCTION);
    return strcmp(state, "0A000") == 0 && function && strcmp(function, "RevalidateCachedQuery") == 0;
}

static status_t fail_result(struct connection *c, const char *what, const PGresult *r, struct err *e) {
    const char *state = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    if (!state)
        return fail_connection(c, what, e);
    const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    text = text ? text : "";
    const status_t st = is_stale_plan(r, state) ? ST_UNAVAILABLE : status_of_sqlstate(state);
    c->suspect |= st == ST_UNAVAILABLE;
    return err_set(e, st, "PostgreSQL: %s: %.*s (%s)", what, first_line(text), text, state);
}

bool connection_broken(const struct connection *c) { return PQstatus(c->pg) != CONNECTION_OK; }

/* Closes the connection: a late answer could not be distinguished from the next one. */
static status_t fail_silent(struct connection *c, const char *what, struct err *e) {
    PQfinish(c->pg);
    c->pg = NULL;
    return err_set(e, ST_UNAVAILABLE, "PostgreSQL: %s: no answer within %d ms", what, c->timeout_ms + ANSWER_EXTRA_MS);
}

/* ---- connections ---- */

/* Drops notices, such as that of DROP IF EXISTS without the table: libraries do not log. */
static void drop_notice(void *ctx, const PGresult *r) { (void)ctx, (void)r; }

status_t connection_open(const char *conninfo, struct connection **ret, struct err *e) {
    /* connect_timeout is in seconds, at least 2. A dead TCP peer is detected after 10 s. */
    const char *const keys[] = { "dbname",           "connect_timeout",
                                 "keepalives_idle",  "keepalives_interval",
                                 "keepalives_count", "tcp_user_timeout",
                                 "client_encoding",  "fallback_application_name",
                                 "options",          NULL };
    const char *const values[] = {
        conninfo,
        "2",
        "5",
        "2",
        "3",
        "10000",
        "UTF8",
        "trainyard",
        "-c statement_timeout=" QUOTE(
            STORE_STATEMENT_TIMEOUT_MS) " -c idle_in_transaction_session_timeout=10000 -c jit=off",
        NULL
    };
    CLEANUP(connection_closep) struct connection *c = alloc_zeroed(1, sizeof *c);
    c->timeout_ms = STORE_STATEMENT_TIMEOUT_MS;
    c->pg = PQconnectdbParams(keys, values, 1);
    if (!c->pg || PQstatus(c->pg) != CONNECTION_OK) {
        const char *text = c->pg ? PQerrorMessage(c->pg) : "no memory";
        return err_set(e, ST_UNAVAILABLE, "PostgreSQL: %.*s", first_line(text), text);
    }
    PQsetNoticeReceiver(c->pg, drop_notice, NULL);
    if (PQsetnonblocking(c->pg, 1) != 0)
        return fail_connection(c, "connect", e);
    *ret = take_ptr(&c);
    return ST_OK;
}

struct connection *connection_close(struct connection *c) {
    if (c) {
        PQfinish(c->pg);
        free(c);
    }
    return NULL;
}

/* ---- waiting ---- */

/* Asks the server to cancel the running statement, whose result then reports the cancellation. */
static status_t cancel(struct connection *c, const char *what, struct err *e) {
    char why[256] = "no memory";
    PGcancel *handle = PQgetCancel(c->pg);
    c->cancelled = handle && PQcancel(handle, why, sizeof why);
    PQfreeCancel(handle);
    return c->cancelled ? ST_OK
                        : err_set(e, ST_UNAVAILABLE, "PostgreSQL: %s: the statement cannot be cancelled: %.*s", what,
                                  first_line(why), why);
}

/* Waits once, for the socket, the next progress report, cancel_fd, or the deadline, which is a failure. */
static status_t wait_once(struct connection *c, const char *what, bool writing, deadline_ms_t deadline,
                          deadline_ms_t *next_progress, struct err *e) {
    const struct sql_watch *w = c->watch;
    struct pollfd fds[] = { { .fd = PQsocket(c->pg), .events = (short)(POLLIN | (writing ? POLLOUT : 0)) },
                            { .fd = w && !c->cancelled ? w->cancel_fd : -1, .events = POLLIN } };
    int n = poll(fds, 2, deadline_poll_ms(*next_progress < deadline ? *next_progress : deadline));
    if (n < 0 && errno != EINTR)
        return err_errno(e, "poll PostgreSQL's socket");
    if (n == 0 && clock_mono_ms() >= deadline)
        return fail_silent(c, what, e);
    if (n == 0 && w && clock_mono_ms() >= *next_progress) {
        w->progress(w->ctx);
        *next_progress = deadline_in(w->interval_ms);
    }
    if (n > 0 && (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) && !PQconsumeInput(c->pg))
        return fail_connection(c, what, e);
    return n > 0 && fds[1].revents ? cancel(c, what, e) : ST_OK;
}

/* Writes what libpq has buffered, and reads meanwhile, so that neither side waits for the other. until_result:
 * continues until a result can be taken without waiting. */
static status_t pump(struct connection *c, const char *what, bool until_result, struct err *e) {
    deadline_ms_t deadline = c->timeout_ms ? deadline_in(c->timeout_ms + ANSWER_EXTRA_MS) : DEADLINE_NEVER;
    deadline_ms_t next_progress = c->watch ? deadline_in(c->watch->interval_ms) : DEADLINE_NEVER;
    for (;;) {
        int flush = PQflush(c->pg);
        if (flush < 0)
            return fail_connection(c, what, e);
        if (flush == 0 && (!until_result || !PQisBusy(c->pg)))
            return ST_OK;
        TRY(wait_once(c, what, flush != 0, deadline, &next_progress, e));
    }
}

/* Takes all results of the statement that was sent. Returns the last one. */
static status_t take_result(struct connection *c, const char *what, PGresult **ret, struct err *e) {
    CLEANUP(sql_clearp) PGresult *last = NULL;
    for (;;) {
        TRY(pump(c, what, true, e));
        PGresult *r = PQgetResult(c->pg);
        if (!r)
            break;
        /* A failure inside a script is returned to the caller, not the result after it. */
        if (last && PQresultStatus(last) == PGRES_FATAL_ERROR)
            PQclear(r);
        else {
            PQclear(last);
            last = r;
        }
    }
    ExecStatusType status = last ? PQresultStatus(last) : PGRES_FATAL_ERROR;
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && status != PGRES_EMPTY_QUERY)
        return fail_result(c, what, last, e);
    if (ret)
        *ret = take_ptr(&last);
    return ST_OK;
}

/* ---- statements ---- */

static const struct sql **prepared_slot(struct connection *c, const struct sql *q) {
    size_t i = ((uintptr_t)q >> 4) * 2654435761u % SQL_MAX_PREPARED;
    while (c->prepared[i] && c->prepared[i] != q)
        i = (i + 1) % SQL_MAX_PREPARED;
    return &c->prepared[i];
}

/* query: NULL, or the query whose `sql` q is, which puts its columns into the text. */
static status_t prepare(struct connection *c, const struct sql *q, const struct sql_query *query,
                        const struct sql_encoded *a, struct err *e) {
    const struct sql **slot = prepared_slot(c, q);
    if (*slot)
        return ST_OK;
    if (c->n_prepared == SQL_MAX_PREPARED - 1)
        return err_set(e, ST_INTERNAL, "more than %d statements on one connection", SQL_MAX_PREPARED - 1);
    CLEANUP(freep) char *text = query ? sql_query_text(query) : NULL;
    if (!PQsendPrepare(c->pg, q->name, text ? text : q->text, a->n, a->types))
        return fail_connection(c, q->name, e);
    TRY(take_result(c, q->name, NULL, e));
    *slot = q;
    c->n_prepared++;
    return ST_OK;
}

static status_t send(struct connection *c, const struct sql *q, const struct sql_encoded *a, struct err *e) {
    int ok = PQsendQueryPrepared(c->pg, q->name, a->n, a->values, a->lengths, a->formats, 1);
    return ok ? ST_OK : fail_connection(c, q->name, e);
}

static status_t run(struct connection *c, const struct sql *q, const struct sql_query *query,
                    const struct sql_arg *args, PGresult **ret, struct err *e) {
    CLEANUP(sql_encoded_done) struct sql_encoded a;
    sql_encode(args, &a);
    const int64_t begun_ns = clock_mono_ns();
    TRY(prepare(c, q, query, &a, e));
    TRY(send(c, q, &a, e));
    const status_t st = take_result(c, q->name, ret, e);
    if (c->times)
        histogram_add(c->times, clock_mono_ns() - begun_ns);
    return st;
}

status_t sql_execute(struct connection *c, const struct sql *q, const struct sql_arg *args, int64_t *ret_n,
                     struct err *e) {
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(run(c, q, NULL, args, &r, e));
    if (ret_n)
        *ret_n = atoll(PQcmdTuples(r)); /* of a SELECT: the rows that it returned */
    return ST_OK;
}

static status_t rows_of(const struct sql_query *q, struct store_memory *m, PGresult **take_r, void *ret_rows,
                        size_t *ret_n, struct err *e) {
    char *rows;
    const size_t n = (size_t)PQntuples(*take_r);
    TRY(sql_read_rows(q, m, take_r, &rows, e));
    memcpy(ret_rows, &rows, sizeof rows);
    *ret_n = n;
    return ST_OK;
}

status_t sql_rows_of(struct connection *c, struct store_memory *m, const struct sql_query *q,
                     const struct sql_arg *args, void *ret_rows, size_t size, size_t *ret_n, struct err *e) {
    assert(size == q->row->size);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(run(c, &q->sql, q, args, &r, e));
    return rows_of(q, m, &r, ret_rows, ret_n, e);
}

status_t sql_rows_once_of(struct connection *c, struct store_memory *m, const struct sql_query *q,
                          const struct sql_arg *args, void *ret_rows, size_t size, size_t *ret_n, struct err *e) {
    assert(size == q->row->size);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    CLEANUP(sql_encoded_done) struct sql_encoded a;
    CLEANUP(freep) char *text = sql_query_text(q);
    sql_encode(args, &a);
    if (!PQsendQueryParams(c->pg, text, a.n, a.types, a.values, a.lengths, a.formats, 1))
        return fail_connection(c, q->sql.name, e);
    TRY(take_result(c, q->sql.name, &r, e));
    return rows_of(q, m, &r, ret_rows, ret_n, e);
}

status_t sql_find_of(struct connection *c, struct store_memory *m, const struct sql_query *q,
                     const struct sql_arg *args, void *ret, size_t size, bool *ret_found, struct err *e) {
    assert(size == q->row->size);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(run(c, &q->sql, q, args, &r, e));
    *ret_found = PQntuples(r) > 0;
    return *ret_found ? sql_read_row(q, m, &r, ret, e) : ST_OK;
}

status_t sql_get_of(struct connection *c, struct store_memory *m, const struct sql_query *q, const struct sql_arg *args,
                    void *ret, size_t size, const char *what, struct err *e) {
    bool found;
    TRY(sql_find_of(c, m, q, args, ret, size, &found, e));
    return found ? ST_OK : err_set(e, ST_NOT_FOUND, "%s", what);
}

status_t sql_script(struct connection *c, const char *text, struct err *e) {
    char what[24];
    snprintf(what, sizeof what, "%.*s", first_line(text), text);
    if (!PQsendQuery(c->pg, text))
        return fail_connection(c, what, e);
    return take_result(c, what, NULL, e);
}

status_t sql_set_timeout(struct connection *c, int timeout_ms, struct err *e) {
    char text[64];
    snprintf(text, sizeof text, "SET statement_timeout = %d", timeout_ms);
    TRY(sql_script(c, text, e));
    c->timeout_ms = timeout_ms;
    return ST_OK;
}

/* ---- pipelines ---- */

status_t sql_pipeline_begin(struct connection *c, struct err *e) {
    if (!PQenterPipelineMode(c->pg))
        return fail_connection(c, "pipeline", e);
    c->in_pipeline = true;
    return ST_OK;
}

status_t sql_pipeline_prepare(struct connection *c, const struct sql *q, const struct sql_arg *like, struct err *e) {
    CLEANUP(sql_encoded_done) struct sql_encoded a;
    sql_encode(like, &a);
    return prepare(c, q, NULL, &a, e);
}

/* libpq keeps the bytes that the socket does not take: they are written out here, so that its buffer stays small. */
status_t sql_pipeline_send(struct connection *c, const struct sql *q, const struct sql_arg *args, struct err *e) {
    CLEANUP(sql_encoded_done) struct sql_encoded a;
    sql_encode(args, &a);
    TRY(send(c, q, &a, e));
    return pump(c, q->name, false, e);
}

static status_t take_pipeline_result(struct connection *c, struct err *e) {
    TRY(pump(c, "pipeline", true, e));
    CLEANUP(sql_clearp) PGresult *r = PQgetResult(c->pg);
    ExecStatusType status = r ? PQresultStatus(r) : PGRES_FATAL_ERROR;
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        return fail_result(c, "pipeline", r, e);
    /* A NULL ends each statement's results. */
    TRY(pump(c, "pipeline", true, e));
    PGresult *end = PQgetResult(c->pg);
    if (end) {
        PQclear(end);
        return err_set(e, ST_INTERNAL, "PostgreSQL sent two results for one statement");
    }
    return ST_OK;
}

/* After a failure the pool closes the connection, which is simpler than to read the remaining results. */
status_t sql_pipeline_end(struct connection *c, size_t n, struct err *e) {
    if (!PQpipelineSync(c->pg))
        return fail_connection(c, "pipeline", e);
    for (size_t i = 0; i < n; i++)
        TRY(take_pipeline_result(c, e));
    TRY(pump(c, "pipeline", true, e));
    CLEANUP(sql_clearp) PGresult *sync = PQgetResult(c->pg);
    if (PQresultStatus(sync) != PGRES_PIPELINE_SYNC)
        return fail_result(c, "pipeline", sync, e);
    if (!PQexitPipelineMode(c->pg))
        return fail_connection(c, "pipeline", e);
    c->in_pipeline = false;
    return ST_OK;
}
