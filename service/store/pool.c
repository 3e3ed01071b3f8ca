#include "service/store/pool.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* Deadlocks and serialisation failures end by themselves; more than this many in a row is a fault worth seeing. */
#define RACES_MOST 5

static const struct sql LEADER_EPOCH = { "leader_epoch", "SELECT 1 FROM leader WHERE epoch = $1 FOR SHARE" };

struct store *store_close(struct store *s) {
    if (!s)
        return NULL;
    for (int i = 0; i < s->n_idle; i++)
        connection_close(s->idle[i]);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->came_free);
    free(s->idle);
    free(s->conninfo);
    free(s);
    return NULL;
}

struct store *store_new(const struct store_options *options) {
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->most = options->connections > 0 ? options->connections : 8;
    s->patience_ms = options->patience_ms == 0 ? 2000 : options->patience_ms < 0 ? 0 : options->patience_ms;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->came_free, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->idle = calloc((size_t)s->most, sizeof *s->idle);
    s->conninfo = strdup(options->conninfo);
    return s->idle && s->conninfo ? s : store_close(s);
}

/* ---- connections ---- */

/* Called with the lock held: waits for a connection, a place for one, or the end of the backoff. Returns OK with *ret =
 * NULL when the caller may open one; n_open counts it already. */
static status_t wait_for_place(struct store *s, deadline_ms_t deadline, struct connection **ret, struct err *e) {
    for (;;) {
        if (s->n_idle > 0) {
            *ret = s->idle[--s->n_idle];
            return ST_OK;
        }
        int64_t now = clock_mono_ms();
        bool may_open = s->n_open < s->most;
        if (may_open && now >= s->next_connect_ms) {
            s->n_open++;
            *ret = NULL;
            return ST_OK;
        }
        deadline_ms_t until = may_open && s->next_connect_ms < deadline ? s->next_connect_ms : deadline;
        if (now >= deadline)
            return may_open ? err_set(e, ST_UNAVAILABLE, "%s", s->away.msg)
                            : err_set(e, ST_RESOURCE_EXHAUSTED, "all %d connections to PostgreSQL are busy", s->most);
        struct timespec at = deadline_timespec(until);
        pthread_cond_timedwait(&s->came_free, &s->lock, &at);
    }
}

/* why: NULL = it went well. */
static void note_connect(struct store *s, const struct err *why) {
    pthread_mutex_lock(&s->lock);
    if (!why) {
        s->stats.reconnects += s->backoff_ms > 0;
        s->backoff_ms = 0;
        s->next_connect_ms = 0;
    } else {
        s->backoff_ms = s->backoff_ms ? s->backoff_ms * 2 : POOL_BACKOFF_FIRST_MS;
        if (s->backoff_ms > POOL_BACKOFF_MOST_MS)
            s->backoff_ms = POOL_BACKOFF_MOST_MS;
        s->next_connect_ms = clock_mono_ms() + s->backoff_ms;
        s->away = *why;
        s->n_open--;
    }
    pthread_cond_broadcast(&s->came_free);
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
    note_connect(s, st == ST_OK ? NULL : &why);
    return st == ST_OK ? ST_OK : err_set(e, st, "%s", why.msg);
}

/* A connection that failed in any way beyond a refused statement is not used again. */
static void release(struct store *s, struct connection *c) {
    bool broken = connection_broken(c) || PQtransactionStatus(c->pg) != PQTRANS_IDLE || c->in_pipeline;
    if (broken)
        connection_close(c);
    pthread_mutex_lock(&s->lock);
    if (broken)
        s->n_open--;
    else
        s->idle[s->n_idle++] = c;
    pthread_cond_signal(&s->came_free);
    pthread_mutex_unlock(&s->lock);
}

/* After a restart of PostgreSQL every idle connection is dead: found out all at once, not one failure each. */
static void drop_idle(struct store *s) {
    pthread_mutex_lock(&s->lock);
    while (s->n_idle > 0) {
        connection_close(s->idle[--s->n_idle]);
        s->n_open--;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- running ---- */

status_t store_transact_on(struct connection *c, int64_t epoch, store_body body, void *ctx, struct err *e) {
    TRY(sql_script(c, "BEGIN", e));
    status_t st = ST_OK;
    if (epoch) {
        struct sql_args a = { 0 };
        sql_add_int8(&a, epoch);
        CLEANUP(sql_clearp) PGresult *r = NULL;
        st = sql_run(c, &LEADER_EPOCH, &a, &r, e);
        if (st == ST_OK && PQntuples(r) == 0)
            st = err_set(e, ST_FAILED_PRECONDITION, "epoch %lld is over: another controller leads", (long long)epoch);
    }
    if (st == ST_OK)
        st = body(c, ctx, e);
    if (st == ST_OK)
        return sql_script(c, "COMMIT", e);
    if (!connection_broken(c) && !c->in_pipeline)
        status_ignore(sql_script(c, "ROLLBACK", NULL));
    return st;
}

struct run {
    int64_t epoch; /* < 0: no transaction of ours */
    store_body body;
    void *ctx;
};

static status_t run_once(struct store *s, const struct run *run, deadline_ms_t deadline, struct err *e) {
    struct connection *c = NULL;
    TRY(acquire(s, deadline, &c, e));
    int64_t start = clock_mono_ns();
    status_t st = run->epoch < 0 ? run->body(c, run->ctx, e) : store_transact_on(c, run->epoch, run->body, run->ctx, e);
    int64_t took = clock_mono_ns() - start;
    release(s, c);
    pthread_mutex_lock(&s->lock);
    s->stats.busy_ns += took;
    *(st == ST_OK ? &s->stats.transactions : &s->stats.failures) += 1;
    pthread_mutex_unlock(&s->lock);
    return st;
}

static status_t run_patiently(struct store *s, const struct run *run, struct err *e) {
    deadline_ms_t deadline = deadline_in(s->patience_ms);
    for (int races = 0;;) {
        status_t st = run_once(s, run, deadline, e);
        if (st == ST_ABORTED && ++races < RACES_MOST)
            continue;
        if (st != ST_UNAVAILABLE || clock_mono_ms() >= deadline)
            return st;
        drop_idle(s);
    }
}

status_t store_query(struct store *s, store_body body, void *ctx, struct err *e) {
    return run_patiently(s, &(struct run){ -1, body, ctx }, e);
}

status_t store_transact(struct store *s, int64_t epoch, store_body body, void *ctx, struct err *e) {
    return run_patiently(s, &(struct run){ epoch, body, ctx }, e);
}

void store_stats(struct store *s, struct store_stats *ret) {
    pthread_mutex_lock(&s->lock);
    *ret = s->stats;
    ret->connections = s->n_open;
    ret->busy = s->n_open - s->n_idle;
    pthread_mutex_unlock(&s->lock);
}
