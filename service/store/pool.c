/* Connections and transactions.
 *
 * At most max_connections are open. acquire takes an idle one or opens one; if all are busy it waits for a release. The
 * other threads leave one to the thread that has called store_reserve. A failed connect makes all callers wait for a
 * pause that doubles from POOL_MIN_BACKOFF_MS to POOL_MAX_BACKOFF_MS.
 *
 * transaction_begin and transaction_end form a loop around the caller's body. begin acquires a connection and, for a
 * write, runs BEGIN and locks the leader's row FOR SHARE, which fails if another election has replaced the epoch. end
 * commits or rolls back, returns the connection to the pool, and decides by the status whether begin runs the body
 * again (conclude): after a lost race (ABORTED) up to MAX_RACES times, after a lost connection (UNAVAILABLE) until the
 * store's patience ends. A lost connection closes all idle ones, because a restart of PostgreSQL has broken them too.
 */
#include "service/store/pool.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* A deadlock or a serialisation failure rarely repeats. After this many in a row the caller sees the failure. */
#define MAX_RACES 5

/* The row lock assigns a transaction id in any case, so that returning the id costs nothing. */
static const struct sql_query LEADER_EPOCH = {
    { "leader_epoch", "SELECT {columns} FROM leader WHERE epoch = $1 AND nonce = $2::uuid AND "
                      "pg_postmaster_start_time() = $3 AND " SQL_LEADER_IN_PLACE " FOR SHARE" },
    SQL_SCALAR(int64_t, "pg_current_xact_id()::text::bigint")
};

struct store *store_close(struct store *s) {
    if (!s)
        return NULL;
    for (int i = 0; i < s->n_idle; i++)
        connection_close(s->idle[i]);
    connection_close(s->standby);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->released);
    free(s->idle);
    free(s->conninfo);
    free(s);
    return NULL;
}

struct store *store_new(const struct store_options *options) {
    struct store *s = alloc_zeroed(1, sizeof *s);
    s->max_connections = options->connections > 0 ? options->connections : 8;
    s->patience_ms = options->patience_ms == 0 ? 2000 : options->patience_ms < 0 ? 0 : options->patience_ms;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->released, NULL);
    s->times = (struct store_times){ .transactions = HISTOGRAM_OF_CALLS,
                                     .statements = HISTOGRAM_OF_CALLS,
                                     .reports = HISTOGRAM_OF_CALLS };
    s->idle = alloc_zeroed((size_t)s->max_connections, sizeof *s->idle);
    s->conninfo = alloc_copy_text(options->conninfo);
    return s;
}

/* ---- connections ---- */

static bool is_owner(const struct store *s) { return s->has_owner && pthread_equal(s->owner, pthread_self()); }

/* How many connections the threads may use that have no reserved one. */
static int shared(const struct store *s) { return s->max_connections - (s->has_owner ? 1 : 0); }

/* Whether the calling thread may use one more connection, an idle one or a new one. */
static bool may_use(const struct store *s) { return is_owner(s) || s->n_open - s->n_idle - s->owner_busy < shared(s); }

void store_reserve(struct store *s) {
    pthread_mutex_lock(&s->lock);
    s->has_owner = true;
    s->owner = pthread_self();
    pthread_mutex_unlock(&s->lock);
}

/* Waits for an idle connection, or until the caller may open one: then *ret is NULL, and n_open counts it already. The
 * caller has locked s->lock. */
static status_t wait_for_place(struct store *s, deadline_ms_t deadline, struct connection **ret, struct err *e) {
    for (;;) {
        const bool may = may_use(s);
        if (may && s->n_idle > 0) {
            *ret = s->idle[--s->n_idle];
            s->owner_busy += is_owner(s);
            return ST_OK;
        }
        int64_t now = clock_mono_ms();
        bool may_open = may && s->n_open < s->max_connections;
        if (may_open && now >= s->next_connect_ms) {
            s->n_open++;
            s->owner_busy += is_owner(s);
            *ret = NULL;
            return ST_OK;
        }
        deadline_ms_t until = may_open && s->next_connect_ms < deadline ? s->next_connect_ms : deadline;
        if (now >= deadline)
            return may_open ? err_set(e, ST_UNAVAILABLE, "%s", s->connect_error.msg)
                            : err_set(e, ST_RESOURCE_EXHAUSTED, "all %d connections to PostgreSQL are busy", shared(s));
        struct timespec at = deadline_timespec(until);
        pthread_cond_clockwait(&s->released, &s->lock, CLOCK_MONOTONIC, &at);
    }
}

/* why: NULL if the connect succeeded. */
static void note_connect(struct store *s, const struct err *why) {
    pthread_mutex_lock(&s->lock);
    if (!why) {
        s->stats.reconnects += s->backoff_ms > 0;
        s->backoff_ms = 0;
        s->next_connect_ms = 0;
    } else {
        s->backoff_ms = s->backoff_ms ? s->backoff_ms * 2 : POOL_MIN_BACKOFF_MS;
        if (s->backoff_ms > POOL_MAX_BACKOFF_MS)
            s->backoff_ms = POOL_MAX_BACKOFF_MS;
        s->next_connect_ms = clock_mono_ms() + s->backoff_ms;
        s->connect_error = *why;
        s->n_open--;
        s->owner_busy -= is_owner(s);
    }
    pthread_cond_broadcast(&s->released);
    pthread_mutex_unlock(&s->lock);
}

static status_t acquire(struct store *s, deadline_ms_t deadline, struct connection **ret, struct err *e) {
    pthread_mutex_lock(&s->lock);
    status_t st = wait_for_place(s, deadline, ret, e);
    pthread_mutex_unlock(&s->lock);
    if (st != ST_OK || *ret)
        return st;
    struct err why = { "" };
    st = connection_open(s->conninfo, ret, &why);
    if (st == ST_OK && s->session) {
        st = sql_script(*ret, s->session, &why);
        *ret = st == ST_OK ? *ret : connection_close(*ret);
    }
    note_connect(s, st == ST_OK ? NULL : &why);
    if (st == ST_OK)
        (*ret)->times = &s->times.statements;
    return st == ST_OK ? ST_OK : err_set(e, st, "%s", why.msg);
}

/* A connection with any failure other than a refused statement is not used again. The waiting threads may have
 * different claims: all of them check. */
static void release(struct store *s, struct connection *c) {
    bool broken = connection_broken(c) || c->suspect || PQtransactionStatus(c->pg) != PQTRANS_IDLE || c->in_pipeline ||
                  c->timeout_ms != STORE_STATEMENT_TIMEOUT_MS;
    if (broken)
        connection_close(c);
    pthread_mutex_lock(&s->lock);
    if (broken)
        s->n_open--;
    else
        s->idle[s->n_idle++] = c;
    s->owner_busy -= is_owner(s);
    if (s->has_owner)
        pthread_cond_broadcast(&s->released);
    else
        pthread_cond_signal(&s->released);
    pthread_mutex_unlock(&s->lock);
}

/* After a restart of PostgreSQL every idle connection is broken. Closing all of them at once avoids a failed call for
 * each. */
static void drop_idle(struct store *s) {
    pthread_mutex_lock(&s->lock);
    while (s->n_idle > 0) {
        connection_close(s->idle[--s->n_idle]);
        s->n_open--;
    }
    pthread_mutex_unlock(&s->lock);
}

void pool_set_session(struct store *s, const char *text) {
    s->session = text;
    drop_idle(s);
}

struct connection *store_take_standby(struct store *s) {
    pthread_mutex_lock(&s->lock);
    struct connection *c = s->standby;
    s->standby = NULL;
    pthread_mutex_unlock(&s->lock);
    return c;
}

void store_keep_standby(struct store *s, struct connection *c) {
    pthread_mutex_lock(&s->lock);
    struct connection *before = s->standby;
    s->standby = c;
    pthread_mutex_unlock(&s->lock);
    connection_close(before);
}

/* ---- running ---- */

struct term store_term(struct store *s) {
    pthread_mutex_lock(&s->lock);
    struct term term = s->term;
    pthread_mutex_unlock(&s->lock);
    return term;
}

void store_set_term(struct store *s, const struct term *term) {
    pthread_mutex_lock(&s->lock);
    s->term = *term;
    pthread_mutex_unlock(&s->lock);
}

void store_note_commit(struct store *s, int64_t id) {
    pthread_mutex_lock(&s->lock);
    s->commits[s->n_commits++ % POOL_COMMITS] = id;
    pthread_mutex_unlock(&s->lock);
}

size_t store_commits(struct store *s, int64_t ret[POOL_COMMITS]) {
    pthread_mutex_lock(&s->lock);
    size_t n = s->n_commits < POOL_COMMITS ? s->n_commits : POOL_COMMITS;
    memcpy(ret, s->commits, n * sizeof *ret);
    pthread_mutex_unlock(&s->lock);
    return n;
}

status_t store_term_over(int64_t epoch, struct err *e) {
    return err_set(e, ST_FAILED_PRECONDITION,
                   "epoch %lld is over: another controller leads, or PostgreSQL has restarted", (long long)epoch);
}

static status_t take_epoch(struct transaction *t, struct err *e) {
    const struct term term = store_term(t->store);
    bool won = term.epoch == t->epoch;
    if (won)
        TRY(sql_find(t->c, NULL, &LEADER_EPOCH, ARGS(ARGS_OF_TERM(term)), &t->id, &won, e));
    return won ? ST_OK : store_term_over(t->epoch, e);
}

struct transaction transaction_write(struct store *s, int64_t epoch) {
    return (struct transaction){ .store = s, .epoch = epoch, .deadline = deadline_in(s->patience_ms) };
}

struct transaction transaction_read(struct store *s) {
    return transaction_write(s, -1);
}

/* Decides by the status of one try whether there is another. */
static void conclude(struct transaction *t, status_t st) {
    t->status = st;
    if (st == ST_ABORTED && ++t->races < MAX_RACES)
        return;
    t->over = st != ST_UNAVAILABLE || clock_mono_ms() >= t->deadline;
    if (!t->over)
        drop_idle(t->store);
}

static status_t open_transaction(struct transaction *t, struct err *e) {
    if (t->epoch >= 0)
        TRY(sql_script(t->c, "BEGIN", e));
    return t->epoch > 0 ? take_epoch(t, e) : ST_OK;
}

bool transaction_begin(struct transaction *t, struct err *e) {
    while (!t->over) {
        t->id = 0;
        status_t st = acquire(t->store, t->deadline, &t->c, e);
        if (st != ST_OK) {
            conclude(t, st);
            continue;
        }
        t->start_ns = clock_mono_ns();
        st = open_transaction(t, e);
        if (st == ST_OK)
            return true;
        transaction_end(t, st, e);
    }
    return false;
}

static status_t close_transaction(struct transaction *t, status_t st, struct err *e) {
    if (st == ST_OK) {
        TRY(sql_script(t->c, "COMMIT", e));
        if (t->id)
            store_note_commit(t->store, t->id);
        return ST_OK;
    }
    if (!connection_broken(t->c) && !t->c->in_pipeline)
        status_ignore(sql_script(t->c, "ROLLBACK", NULL));
    return st;
}

void transaction_end(struct transaction *t, status_t st, struct err *e) {
    struct store *s = t->store;
    if (t->epoch >= 0)
        st = close_transaction(t, st, e);
    const int64_t took = clock_mono_ns() - t->start_ns;
    release(s, t->c);
    t->c = NULL;
    histogram_add(&s->times.transactions, took);
    pthread_mutex_lock(&s->lock);
    *(st == ST_OK ? &s->stats.transactions : &s->stats.failures) += 1;
    pthread_mutex_unlock(&s->lock);
    conclude(t, st);
}

/* ---- one statement ---- */

/* A connection whose timeout stays changed, because the query failed, is not used again (release). */
static status_t rows_within(struct connection *c, int timeout_ms, struct store_memory *m, const struct sql_query *q,
                            const struct sql_arg *args, void *ret_rows, size_t size, size_t *ret_n, struct err *e) {
    if (timeout_ms == STORE_STATEMENT_TIMEOUT_MS)
        return sql_rows_of(c, m, q, args, ret_rows, size, ret_n, e);
    TRY(sql_set_timeout(c, timeout_ms, e));
    TRY(sql_rows_of(c, m, q, args, ret_rows, size, ret_n, e));
    return sql_set_timeout(c, STORE_STATEMENT_TIMEOUT_MS, e);
}

status_t store_rows_of(struct store *s, int timeout_ms, struct store_memory *m, const struct sql_query *q,
                       const struct sql_arg *args, void *ret_rows, size_t size, size_t *ret_n, struct err *e) {
    return STORE_READ(s, c, rows_within(c, timeout_ms, m, q, args, ret_rows, size, ret_n, e), e);
}

status_t store_find_of(struct store *s, struct store_memory *m, const struct sql_query *q, const struct sql_arg *args,
                       void *ret, size_t size, bool *ret_found, struct err *e) {
    return STORE_READ(s, c, sql_find_of(c, m, q, args, ret, size, ret_found, e), e);
}

status_t store_execute(struct store *s, int64_t epoch, const struct sql *q, const struct sql_arg *args, int64_t *ret_n,
                       struct err *e) {
    return STORE_WRITE(s, epoch, c, sql_execute(c, q, args, ret_n, e), e);
}

status_t store_state_counts(struct store *s, const struct sql_query *q, int64_t *counts, int n_states, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct state_count *rows;
    size_t n;
    TRY(store_rows(s, m, q, NULL, &rows, &n, e));
    memset(counts, 0, (size_t)n_states * sizeof *counts);
    for (size_t i = 0; i < n; i++)
        counts[rows[i].state] = rows[i].n;
    return ST_OK;
}

void store_stats(struct store *s, struct store_stats *ret) {
    pthread_mutex_lock(&s->lock);
    *ret = s->stats;
    ret->connections = s->n_open;
    ret->busy = s->n_open - s->n_idle;
    pthread_mutex_unlock(&s->lock);
}

const struct store_times *store_times(const struct store *s) { return &s->times; }
