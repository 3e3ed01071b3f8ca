#include "service/store/sql.h"

#include "base/limits.h"
#include "service/store/store.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long we wait for an answer: the server gives a statement up after STORE_STATEMENT_TIMEOUT_MS, so a silent server
 * is one that is stopped or unreachable. */
#define ANSWER_TIMEOUT_MS (STORE_STATEMENT_TIMEOUT_MS + 3000)

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
        { "25P03", ST_UNAVAILABLE },                                    /* idle in transaction too long */
        { "53300", ST_UNAVAILABLE },                                    /* too many connections */
        { "53", ST_RESOURCE_EXHAUSTED },   { "23505", ST_ALREADY_EXISTS },
        { "23", ST_FAILED_PRECONDITION },  { "22", ST_INVALID_ARGUMENT },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strncmp(state, table[i].prefix, strlen(table[i].prefix)) == 0)
            return table[i].status;
    return ST_INTERNAL;
}

/* libpq's texts end in a newline and may have several lines: the first one says what happened. */
static int first_line(const char *text) { return (int)strcspn(text, "\n"); }

static status_t fail_connection(struct connection *c, const char *what, struct err *e) {
    const char *text = PQerrorMessage(c->pg);
    return err_set(e, ST_UNAVAILABLE, "PostgreSQL: %s: %.*s", what, first_line(text), text);
}

static status_t fail_result(struct connection *c, const char *what, const PGresult *r, struct err *e) {
    const char *state = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    if (!state)
        return fail_connection(c, what, e);
    const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    text = text ? text : "";
    return err_set(e, status_of_sqlstate(state), "PostgreSQL: %s: %.*s (%s)", what, first_line(text), text, state);
}

bool connection_broken(const struct connection *c) { return PQstatus(c->pg) != CONNECTION_OK; }

/* Ends the connection's usefulness: what is on its way cannot be told apart from what comes next. */
static status_t fail_silent(struct connection *c, const char *what, struct err *e) {
    PQfinish(c->pg);
    c->pg = NULL;
    return err_set(e, ST_UNAVAILABLE, "PostgreSQL: %s: no answer within %d ms", what, ANSWER_TIMEOUT_MS);
}

/* ---- connections ---- */

/* Notices (a table that does not exist on DROP IF EXISTS, ...) are for nobody: libraries do not log. */
static void drop_notice(void *ctx, const PGresult *r) { (void)ctx, (void)r; }

status_t connection_open(const char *conninfo, struct connection **ret, struct err *e) {
    /* connect_timeout is in seconds and has a least value of 2. A dead TCP peer is known after 10 s. */
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
    CLEANUP(connection_closep) struct connection *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a connection");
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

/* Writes what libpq holds back, reading meanwhile, so that neither side waits for the other. `until_result`: goes on
 * until a result can be taken without waiting. */
static status_t pump(struct connection *c, const char *what, bool until_result, struct err *e) {
    deadline_ms_t deadline = deadline_in(ANSWER_TIMEOUT_MS);
    for (;;) {
        int flush = PQflush(c->pg);
        if (flush < 0)
            return fail_connection(c, what, e);
        if (flush == 0 && (!until_result || !PQisBusy(c->pg)))
            return ST_OK;
        struct pollfd fd = { .fd = PQsocket(c->pg), .events = (short)(POLLIN | (flush ? POLLOUT : 0)) };
        int n = poll(&fd, 1, deadline_poll_ms(deadline));
        if (n == 0)
            return fail_silent(c, what, e);
        if (n < 0 && errno != EINTR)
            return err_errno(e, "poll PostgreSQL's socket");
        if (n > 0 && (fd.revents & (POLLIN | POLLHUP | POLLERR)) && !PQconsumeInput(c->pg))
            return fail_connection(c, what, e);
    }
}

/* Takes all results of the statement that was sent; the last one is returned. */
static status_t take_result(struct connection *c, const char *what, PGresult **ret, struct err *e) {
    CLEANUP(sql_clearp) PGresult *last = NULL;
    for (;;) {
        TRY(pump(c, what, true, e));
        PGresult *r = PQgetResult(c->pg);
        if (!r)
            break;
        /* A failure inside a script is what the caller must hear of, not the result after it. */
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
    size_t i = ((uintptr_t)q >> 4) * 2654435761u % SQL_PREPARED_MOST;
    while (c->prepared[i] && c->prepared[i] != q)
        i = (i + 1) % SQL_PREPARED_MOST;
    return &c->prepared[i];
}

status_t sql_prepare(struct connection *c, const struct sql *q, const struct sql_args *like, struct err *e) {
    const struct sql **slot = prepared_slot(c, q);
    if (*slot)
        return ST_OK;
    if (c->n_prepared == SQL_PREPARED_MOST - 1)
        return err_set(e, ST_INTERNAL, "more than %d statements on one connection", SQL_PREPARED_MOST - 1);
    if (!PQsendPrepare(c->pg, q->name, q->text, like ? like->n : 0, like ? like->types : NULL))
        return fail_connection(c, q->name, e);
    TRY(take_result(c, q->name, NULL, e));
    *slot = q;
    c->n_prepared++;
    return ST_OK;
}

static status_t send(struct connection *c, const struct sql *q, const struct sql_args *a, struct err *e) {
    int ok = PQsendQueryPrepared(c->pg, q->name, a ? a->n : 0, a ? a->values : NULL, a ? a->lengths : NULL,
                                 a ? a->formats : NULL, 1);
    return ok ? ST_OK : fail_connection(c, q->name, e);
}

status_t sql_run(struct connection *c, const struct sql *q, const struct sql_args *a, PGresult **ret, struct err *e) {
    TRY(sql_prepare(c, q, a, e));
    TRY(send(c, q, a, e));
    return take_result(c, q->name, ret, e);
}

status_t sql_run_one(struct connection *c, const struct sql *q, const struct sql_args *a, PGresult **ret,
                     const char *what, struct err *e) {
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, q, a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_NOT_FOUND, "%s", what);
    *ret = take_ptr(&r);
    return ST_OK;
}

status_t sql_script(struct connection *c, const char *text, struct err *e) {
    char what[24];
    snprintf(what, sizeof what, "%.*s", first_line(text), text);
    if (!PQsendQuery(c->pg, text))
        return fail_connection(c, what, e);
    return take_result(c, what, NULL, e);
}

/* ---- pipelines ---- */

status_t sql_pipeline_begin(struct connection *c, struct err *e) {
    if (!PQenterPipelineMode(c->pg))
        return fail_connection(c, "pipeline", e);
    c->in_pipeline = true;
    return ST_OK;
}

/* libpq keeps what the socket does not take: written out here, so that its buffer stays small. */
status_t sql_pipeline_send(struct connection *c, const struct sql *q, const struct sql_args *a, struct err *e) {
    TRY(send(c, q, a, e));
    return pump(c, q->name, false, e);
}

static status_t take_pipeline_result(struct connection *c, int64_t *rows, struct err *e) {
    TRY(pump(c, "pipeline", true, e));
    CLEANUP(sql_clearp) PGresult *r = PQgetResult(c->pg);
    ExecStatusType status = r ? PQresultStatus(r) : PGRES_FATAL_ERROR;
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        return fail_result(c, "pipeline", r, e);
    *rows += atoll(PQcmdTuples(r));
    /* Each statement's results end in a NULL. */
    TRY(pump(c, "pipeline", true, e));
    PGresult *end = PQgetResult(c->pg);
    if (end) {
        PQclear(end);
        return err_set(e, ST_INTERNAL, "PostgreSQL sent two results for one statement");
    }
    return ST_OK;
}

/* After a failure the connection is closed by its user rather than drained: it is rare, and always right. */
status_t sql_pipeline_end(struct connection *c, size_t n, int64_t *ret_rows, struct err *e) {
    int64_t rows = 0;
    if (!PQpipelineSync(c->pg))
        return fail_connection(c, "pipeline", e);
    for (size_t i = 0; i < n; i++)
        TRY(take_pipeline_result(c, &rows, e));
    TRY(pump(c, "pipeline", true, e));
    CLEANUP(sql_clearp) PGresult *sync = PQgetResult(c->pg);
    if (PQresultStatus(sync) != PGRES_PIPELINE_SYNC)
        return fail_result(c, "pipeline", sync, e);
    if (!PQexitPipelineMode(c->pg))
        return fail_connection(c, "pipeline", e);
    c->in_pipeline = false;
    if (ret_rows)
        *ret_rows = rows;
    return ST_OK;
}
