/* The store: all SQL of the service and nothing but SQL, over a bounded pool of connections to PostgreSQL.
 *
 *     struct store *s;
 *     TRY(store_open(&(struct store_options){ .conninfo = "host=/run/ty dbname=trainyard" }, &s, e));
 *     CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
 *     struct store_job job;
 *     TRY(store_job_get(s, m, 42, &job, e));       // job's strings live in m
 *
 * One header per table: leader.h, job.h, attempt.h, event.h, checkpoint.h, executor.h, metric.h, log.h, token.h;
 * report.h stores what workers report; migrate.h brings the schema up and down. One C function per statement or
 * transaction.
 *
 * Statuses that every function may return:
 *   UNAVAILABLE          PostgreSQL is away, or went away: call again with the same arguments. Every mutation is safe
 *                        to repeat: it carries a request id, a sequence or a guard, by which a COMMIT whose answer was
 *                        lost is recognised.
 *   FAILED_PRECONDITION  a guard missed: the job is in another state, the attempt is over, or the epoch is (another
 *                        controller leads). Repeating does not help.
 *   ABORTED              lost a race (serialisation or deadlock) more often than the store retries it
 *   DEADLINE_EXCEEDED    a statement took over STORE_STATEMENT_TIMEOUT_MS
 *   RESOURCE_EXHAUSTED   no connection came free in time
 *   NOT_FOUND, INVALID_ARGUMENT, INTERNAL as anywhere
 *
 * Threads: every function may be called from any thread and blocks; struct store_memory, store_leader and store_report
 * objects belong to one thread at a time. Times are microseconds since 1970 UTC; 0 where there is none. */
#ifndef SERVICE_STORE_STORE_H
#define SERVICE_STORE_STORE_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdint.h>

/* A statement that takes longer is given up by the server. */
#define STORE_STATEMENT_TIMEOUT_MS 5000

struct store;
struct store_options {
    const char *conninfo; /* libpq's: "host=/run/ty dbname=trainyard", or a postgresql:// URI */
    int connections;      /* at most; 0 = 8 */
    int patience_ms; /* how long a call waits for PostgreSQL to come back before UNAVAILABLE; 0 = 2000, < 0 = none */
};

/* Checks that the database answers and that its schema is this program's (FAILED_PRECONDITION otherwise, with what to
 * do). Opens one connection; the others as they are needed. */
MUST_CHECK status_t store_open(const struct store_options *options, struct store **ret, struct err *e);
struct store *store_close(struct store *s); /* all calls must have returned */
CLEANUP_DEFINE(struct store *, store_close)

/* What /metrics shows. Counters grow from 0 at store_open. */
struct store_stats {
    int connections, busy; /* open now; of these in use */
    int64_t transactions;  /* that ended well */
    int64_t failures;      /* that did not */
    int64_t reconnects;
    int64_t busy_ns;                    /* sum over transactions of their time */
    int64_t records, points, log_lines; /* stored from reports */
    int64_t report_transactions, report_ns;
};
void store_stats(struct store *s, struct store_stats *ret);

/* One round trip: is PostgreSQL there? */
MUST_CHECK status_t store_ping(struct store *s, struct err *e);

/* Holds what rows point to: strings and arrays that a query returned stay valid until the memory is freed. May serve
 * any number of calls. */
struct store_memory;
struct store_memory *store_memory_new(void);
struct store_memory *store_memory_free(struct store_memory *m);
CLEANUP_DEFINE(struct store_memory *, store_memory_free)

#endif
