#include "service/store/migrate_watch.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>

#define DEFAULT_INTERVAL_MS 5000
/* Between two tries to connect. */
#define CONNECT_PAUSE_MS 250
/* How often the server checks that this process still exists, in ms. */
#define CHECK_CLIENT "SET client_connection_check_interval = 1000"

static const struct sql_query BACKEND_PID = { { "backend_pid", "SELECT {columns}" },
                                              SQL_SCALAR(int, "pg_backend_pid()") };
/* What backend $1 does: which backend has the lock that it waits for, how far an index is, or what else it waits for.
 */
struct backend_state {
    char text[500];
};
static const struct sql_query BACKEND_STATE = {
    { "backend_state", "SELECT {columns}" },
    SQL_ROW(
        struct backend_state,
        SQL_COLUMN(struct backend_state, text,
                   "coalesce("
                   "(SELECT format('waits for a lock that backend %s holds (%s, %s for %s s)', b.pid, "
                   "coalesce(nullif(b.application_name, ''), 'without a name'), coalesce(b.state, 'in a state that is "
                   "hidden'), "
                   "coalesce(extract(epoch FROM now() - b.state_change)::bigint, 0)) FROM pg_stat_activity b "
                   "WHERE b.pid = ANY (pg_blocking_pids($1)) ORDER BY b.pid LIMIT 1), "
                   "(SELECT format('%s, %s of %s blocks, %s of %s rows', p.phase, p.blocks_done, p.blocks_total, "
                   "p.tuples_done, "
                   "p.tuples_total) FROM pg_stat_progress_create_index p WHERE p.pid = $1), "
                   "(SELECT format('PostgreSQL waits for %s: %s', wait_event_type, wait_event) FROM pg_stat_activity "
                   "WHERE pid = $1 AND wait_event IS NOT NULL), 'PostgreSQL computes')"))
};

__attribute__((format(printf, 2, 3))) static void report(const struct migrate_watch *w, const char *fmt, ...) {
    char line[700];
    va_list args;
    if (!w->options->report)
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    w->options->report(w->options->ctx, line);
}

/* ---- while a statement runs ---- */

static status_t read_state(struct migrate_watch *w, struct backend_state *ret, struct err *e) {
    if (!w->side)
        TRY(connection_open(w->conninfo, &w->side, e));
    return sql_get(w->side, NULL, &BACKEND_STATE, ARGS(arg_int4(w->pid)), ret, "PostgreSQL did not report what it does",
                   e);
}

static void progress(void *ctx) {
    struct migrate_watch *w = ctx;
    struct err why;
    if (!w->options->report)
        return;
    struct backend_state state;
    const bool known = read_state(w, &state, &why) == ST_OK;
    const long long seconds = (long long)(clock_mono_ms() - w->begun_ms) / 1000;
    report(w, "%s: %lld s: %s", w->step, seconds, known ? state.text : why.msg);
    if (!known)
        w->side = connection_close(w->side);
}

void migrate_watch_report(struct migrate_watch *w) { progress(w); }

void migrate_watch_begin(struct migrate_watch *w, const char *step, bool quiet) {
    snprintf(w->step, sizeof w->step, "%s", step);
    w->begun_ms = clock_mono_ms();
    if (!quiet)
        report(w, "%s: begins", step);
}

void migrate_watch_end(struct migrate_watch *w) {
    report(w, "%s: done in %.1f s", w->step, (double)(clock_mono_ms() - w->begun_ms) / 1000);
}

static bool cancel_asked(const struct migrate_watch *w, int64_t wait_ms) {
    struct pollfd fd = { .fd = w->options->cancel_fd, .events = POLLIN };
    return poll(&fd, 1, (int)wait_ms) > 0;
}

bool migrate_watch_cancelled(const struct migrate_watch *w, const struct connection *c) {
    return c->cancelled || cancel_asked(w, 0);
}

/* ---- the connection ---- */

/* Whether waiting may help: the server is starting, or does not run yet. A server that refuses this user or database
 * will not change. */
static bool may_come(const char *conninfo) {
    const char *const keys[] = { "dbname", "connect_timeout", NULL }, *const values[] = { conninfo, "2", NULL };
    PGPing found = PQpingParams(keys, values, 1);
    return found == PQPING_REJECT || found == PQPING_NO_RESPONSE;
}

static status_t connect_patiently(struct migrate_watch *w, struct connection **ret, struct err *e) {
    const deadline_ms_t deadline = deadline_in(w->options->wait_ms);
    for (bool reported = false;; reported = true) {
        status_t st = connection_open(w->conninfo, ret, e);
        if (st != ST_UNAVAILABLE || clock_mono_ms() >= deadline || !may_come(w->conninfo))
            return st;
        if (!reported)
            report(w, "waits for PostgreSQL, %d s at most: %s", w->options->wait_ms / 1000, e ? e->msg : "it is away");
        if (cancel_asked(w, CONNECT_PAUSE_MS))
            return err_set(e, ST_CANCELLED, "cancelled before PostgreSQL answered");
    }
}

static status_t prepare(struct migrate_watch *w, struct connection *c, struct err *e) {
    TRY(sql_set_timeout(c, 0, e));
    status_ignore(sql_script(c, CHECK_CLIENT, NULL)); /* some systems lack it */
    TRY(sql_get(c, NULL, &BACKEND_PID, NULL, &w->pid, "PostgreSQL did not report its backend's number", e));
    c->watch = &w->watch;
    return ST_OK;
}

status_t migrate_watch_open(const char *conninfo, const struct store_migrate_watch *options, struct migrate_watch *w,
                            struct connection **ret, struct err *e) {
    static const struct store_migrate_watch no_reports = { .cancel_fd = -1 };
    *w = (struct migrate_watch){ .options = options ? options : &no_reports, .conninfo = conninfo };
    w->watch = (struct sql_watch){ .cancel_fd = w->options->cancel_fd,
                                   .interval_ms = w->options->interval_ms ? w->options->interval_ms
                                                                          : DEFAULT_INTERVAL_MS,
                                   .progress = progress,
                                   .ctx = w };
    CLEANUP(connection_closep) struct connection *c = NULL;
    TRY(connect_patiently(w, &c, e));
    TRY(prepare(w, c, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

void migrate_watch_done(struct migrate_watch *w) { w->side = connection_close(w->side); }
