/* The pool of connections, and how a call uses one. Internal to the store. */
#ifndef SERVICE_STORE_POOL_H
#define SERVICE_STORE_POOL_H

#include "service/store/cluster.h"
#include "service/store/sql.h"
#include "service/store/store.h"

#include <pthread.h>

/* The pause after a failed connect doubles between these. After a kill -9, PostgreSQL refuses connections for about a
 * second. */
#define POOL_MIN_BACKOFF_MS 20
#define POOL_MAX_BACKOFF_MS 500
/* How many of the last answered COMMITs are remembered: more than run at once, so that the last one of the WAL is among
 * them. */
#define POOL_COMMITS 64

/* The leadership under which a store's mutations run. */
struct term {
    int64_t epoch;                /* 0 = none */
    char nonce[STORE_UUID_BYTES]; /* of this election */
    int64_t server_us;            /* when the server was started in which it was won */
};

struct store {
    char *conninfo;
    int max_connections, patience_ms;
    pthread_mutex_t lock; /* of all members below */
    pthread_cond_t released;
    struct connection **idle; /* [max_connections] */
    int n_idle, n_open;
    bool has_owner;             /* store_reserve was called */
    pthread_t owner;            /* by this thread, for which one connection is kept */
    int owner_busy;             /* connections that the owner uses */
    struct connection *standby; /* of a store_leader_try that has not won; NULL: none */
    int backoff_ms;             /* 0: the last connect succeeded */
    int64_t next_connect_ms;    /* the earliest time of the next connect */
    struct err connect_error;   /* why the last connect failed */
    struct term term;
    int64_t commits[POOL_COMMITS]; /* a ring of transaction ids */
    size_t n_commits;              /* since store_open */
    struct store_stats stats;
    struct store_times times; /* without the lock */
    const char *session;      /* runs on each new connection; NULL: nothing */
};

/* store_open without a connection. */
struct store *store_new(const struct store_options *options);

/* Runs `text` (static) on each connection from now on. Call it before another thread uses the store. */
void pool_set_session(struct store *s, const char *text);

/* Runs a call's statements on a connection, and evaluates to their status:
 *
 *     return STORE_WRITE(s, epoch, c, move_job(c, move, &event, e), e);
 *
 * `statements` is an expression that uses the connection c. It may be evaluated several times, so that it sets all that
 * it returns each time: up to MAX_RACES times on ABORTED, and on UNAVAILABLE until the store's patience ends.
 * STORE_READ: each statement is a transaction of its own. STORE_WRITE: BEGIN, the leader's epoch FOR SHARE (unless
 * epoch is 0), the statements, COMMIT. */
#define STORE_READ(s, name, statements, e)         STORE_RUN_(transaction_read(s), name, statements, e)
#define STORE_WRITE(s, epoch, name, statements, e) STORE_RUN_(transaction_write((s), (epoch)), name, statements, e)
#define STORE_RUN_(begun, name, statements, e)                                                                         \
    __extension__({                                                                                                    \
        struct transaction run_ = begun;                                                                               \
        while (transaction_begin(&run_, (e))) {                                                                        \
            struct connection *name = run_.c;                                                                          \
            transaction_end(&run_, (statements), (e));                                                                 \
        }                                                                                                              \
        run_.status;                                                                                                   \
    })

/* What STORE_READ and STORE_WRITE use. */
struct transaction {
    struct connection *c; /* between begin and end */
    status_t status;      /* of the call, once begin has returned false */
    struct store *store;
    int64_t epoch; /* < 0: each statement is a transaction of its own */
    deadline_ms_t deadline;
    int races;
    bool over;
    int64_t start_ns, id; /* id: of the transaction in the server; 0 = unknown */
};
struct transaction transaction_read(struct store *s);
struct transaction transaction_write(struct store *s, int64_t epoch);
/* Whether the statements must run now. A connection or an epoch that cannot be had becomes t->status. */
bool transaction_begin(struct transaction *t, struct err *e);
/* st: the status of the statements. Commits if that is ST_OK, else rolls back. */
void transaction_end(struct transaction *t, status_t st, struct err *e);

/* One query or statement as a call of its own, with sql_rows, sql_find and sql_execute. */
#define store_rows(s, m, q, args, ret_rows, ret_n, e)                                                                  \
    store_rows_of((s), STORE_STATEMENT_TIMEOUT_MS, (m), (q), (args), (ret_rows), sizeof **(ret_rows), (ret_n), (e))
/* With another timeout than STORE_STATEMENT_TIMEOUT_MS. */
#define store_rows_within(s, timeout_ms, m, q, args, ret_rows, ret_n, e)                                               \
    store_rows_of((s), (timeout_ms), (m), (q), (args), (ret_rows), sizeof **(ret_rows), (ret_n), (e))
#define store_find(s, m, q, args, ret, ret_found, e)                                                                   \
    store_find_of((s), (m), (q), (args), (ret), sizeof *(ret), (ret_found), (e))
MUST_CHECK status_t store_rows_of(struct store *s, int timeout_ms, struct store_memory *m, const struct sql_query *q,
                                  const struct sql_arg *args, void *ret_rows, size_t size, size_t *ret_n,
                                  struct err *e);
MUST_CHECK status_t store_find_of(struct store *s, struct store_memory *m, const struct sql_query *q,
                                  const struct sql_arg *args, void *ret, size_t size, bool *ret_found, struct err *e);
/* In a leader's transaction. */
MUST_CHECK status_t store_execute(struct store *s, int64_t epoch, const struct sql *q, const struct sql_arg *args,
                                  int64_t *ret_n, struct err *e);

/* Rows of a state and a number, as counts[state]; states without a row are 0. */
struct state_count {
    int state;
    int64_t n;
};
MUST_CHECK status_t store_state_counts(struct store *s, const struct sql_query *q, int64_t *counts, int n_states,
                                       struct err *e);

/* The session of a try for the leader's lock, kept for the next try. NULL: none. */
struct connection *store_take_standby(struct store *s);
void store_keep_standby(struct store *s, struct connection *c);

/* The leadership that the store's mutations run under; zeros before the first. */
struct term store_term(struct store *s);
void store_set_term(struct store *s, const struct term *term);
/* The place of the leader's row: the oids of its database and of its table. Restoring a dump in place changes one of
 * them, because it creates the table again. */
#define SQL_LEADER_PLACE                                                                                               \
    "(SELECT oid FROM pg_database WHERE datname = current_database())::text || ' ' || tableoid::text"
/* The condition that the row is at the place of its last election. */
#define SQL_LEADER_IN_PLACE "server LIKE '% % ' || " SQL_LEADER_PLACE
/* A term's epoch, nonce and server as three arguments of ARGS. */
#define ARGS_OF_TERM(term) arg_int8((term).epoch), arg_text((term).nonce), arg_time((term).server_us)
/* FAILED_PRECONDITION: the epoch is over. */
status_t store_term_over(int64_t epoch, struct err *e);
/* The COMMIT of this transaction was answered. transaction_end calls it by itself. */
void store_note_commit(struct store *s, int64_t transaction);
/* The ids of the last transactions whose COMMIT was answered. Returns their number. */
size_t store_commits(struct store *s, int64_t ret[POOL_COMMITS]);

/* Keeps a result until m is freed. */
void store_memory_keep(struct store_memory *m, PGresult **take_result);
/* Zeroed memory that is freed with m. */
void *store_memory_get(struct store_memory *m, size_t n, size_t size);

#endif
