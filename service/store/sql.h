/* Statements on one connection. Internal to the store. sql.c is the only caller of libpq's functions that run
 * statements. All values are sent and received in PostgreSQL's binary format. A SQLSTATE becomes a status.
 *
 * A statement is a static constant. Its first use on a connection prepares it there, under its name. sql_rows_once is
 * the exception. */
#ifndef SERVICE_STORE_SQL_H
#define SERVICE_STORE_SQL_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/status.h"
#include "service/store/sql_argument.h"
#include "service/store/sql_row.h"
#include "service/store/state_sql.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More than the store has statements. */
#define SQL_MAX_PREPARED 256

/* Progress reports and cancellation, for statements that may take long. */
struct sql_watch {
    int cancel_fd;               /* when it becomes readable, the server is asked to cancel the statement; -1: none */
    int64_t interval_ms;         /* between two calls of progress */
    void (*progress)(void *ctx); /* must not use the connection */
    void *ctx;
};

struct connection {
    PGconn *pg;
    int timeout_ms;                /* of a statement in the server; 0: none. sql_set_timeout changes it */
    const struct sql_watch *watch; /* NULL = none */
    bool cancelled;                /* by cancel_fd */
    const struct sql *prepared[SQL_MAX_PREPARED]; /* a hash table of addresses, with open addressing */
    int n_prepared;
    bool in_pipeline;
    bool suspect;            /* the server failed, or has forgotten a prepared statement: not for use by another call */
    struct histogram *times; /* of statements; NULL: not counted */
};

/* Opens a connection with the store's session settings. UNAVAILABLE if no server answers. */
MUST_CHECK status_t connection_open(const char *conninfo, struct connection **ret, struct err *e);
struct connection *connection_close(struct connection *c);
CLEANUP_DEFINE(struct connection *, connection_close)
bool connection_broken(const struct connection *c);

/* Sets how long the server lets a statement run. This side waits 3 s longer for the answer: a server that is silent for
 * so long is stopped or unreachable. 0: no limit on either side. A new connection has STORE_STATEMENT_TIMEOUT_MS. */
MUST_CHECK status_t sql_set_timeout(struct connection *c, int timeout_ms, struct err *e);

/* ---- statements ---- */

/* Runs a statement. *ret_n (may be NULL): the rows that it changed or returned. */
MUST_CHECK status_t sql_execute(struct connection *c, const struct sql *q, const struct sql_arg *args, int64_t *ret_n,
                                struct err *e);
/* Runs a query. ret_rows: the address of a pointer to the query's struct; it becomes an array in m of *ret_n. */
#define sql_rows(c, m, q, args, ret_rows, ret_n, e)                                                                    \
    sql_rows_of((c), (m), (q), (args), (ret_rows), sizeof **(ret_rows), (ret_n), (e))
/* The same for a query whose text was composed for this call, in the caller's memory: the statement is not kept
 * prepared, and PostgreSQL plans it for these arguments. */
#define sql_rows_once(c, m, q, args, ret_rows, ret_n, e)                                                               \
    sql_rows_once_of((c), (m), (q), (args), (ret_rows), sizeof **(ret_rows), (ret_n), (e))
/* The first row of a query into *ret, whose strings, bytes and arrays are in m; m may be NULL if it has none. *ret is
 * untouched if *ret_found is false. */
#define sql_find(c, m, q, args, ret, ret_found, e)                                                                     \
    sql_find_of((c), (m), (q), (args), (ret), sizeof *(ret), (ret_found), (e))
/* The same; no row is NOT_FOUND with `what` as its sentence. */
#define sql_get(c, m, q, args, ret, what, e) sql_get_of((c), (m), (q), (args), (ret), sizeof *(ret), (what), (e))

/* The functions of the macros above; size: of the struct, which must be that of the query's row. */
MUST_CHECK status_t sql_rows_of(struct connection *c, struct store_memory *m, const struct sql_query *q,
                                const struct sql_arg *args, void *ret_rows, size_t size, size_t *ret_n, struct err *e);
MUST_CHECK status_t sql_rows_once_of(struct connection *c, struct store_memory *m, const struct sql_query *q,
                                     const struct sql_arg *args, void *ret_rows, size_t size, size_t *ret_n,
                                     struct err *e);
MUST_CHECK status_t sql_find_of(struct connection *c, struct store_memory *m, const struct sql_query *q,
                                const struct sql_arg *args, void *ret, size_t size, bool *ret_found, struct err *e);
MUST_CHECK status_t sql_get_of(struct connection *c, struct store_memory *m, const struct sql_query *q,
                               const struct sql_arg *args, void *ret, size_t size, const char *what, struct err *e);

/* Runs text without arguments, which may be several statements: BEGIN, COMMIT, migrations. */
MUST_CHECK status_t sql_script(struct connection *c, const char *text, struct err *e);

/* Pipelines: statements are sent without waiting; results come in the same order. Between begin and end only these may
 * be used on the connection, with statements that were prepared before. like: arguments of the same types. */
MUST_CHECK status_t sql_pipeline_prepare(struct connection *c, const struct sql *q, const struct sql_arg *like,
                                         struct err *e);
MUST_CHECK status_t sql_pipeline_begin(struct connection *c, struct err *e);
MUST_CHECK status_t sql_pipeline_send(struct connection *c, const struct sql *q, const struct sql_arg *args,
                                      struct err *e);
/* Reads the results of all n statements that were sent, and leaves the pipeline. Returns the first failure. */
MUST_CHECK status_t sql_pipeline_end(struct connection *c, size_t n, struct err *e);

static inline void sql_clearp(PGresult **r) {
    PQclear(*r);
    *r = NULL;
}

#endif
