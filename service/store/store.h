/* The store: all SQL of the service and nothing but SQL, over a bounded pool of connections to PostgreSQL.
 *
 *     struct store *s;
 *     TRY(store_open(&(struct store_options){ .conninfo = "host=/run/ty dbname=trainyard" }, &s, e));
 *     CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
 *     struct store_job job;
 *     TRY(store_job_get(s, m, 42, &job, e));       // job's strings live in m
 *
 * One header for each table: leader.h, job.h, attempt.h, event.h, checkpoint.h, executor.h, metric.h, log.h, token.h,
 * audit.h.
 * report.h stores the reports of workers. migrate.h upgrades and downgrades the schema. Each function is one statement
 * or one transaction.
 *
 * Statuses that every function may return:
 *   UNAVAILABLE          PostgreSQL cannot be reached, the connection was lost, or the server itself failed (an I/O
 *                        error, an internal error, a missing privilege, a schema that changed under the connection).
 *                        Call again with the same arguments:
 *                        every mutation is safe to repeat, because a request id, a sequence number or a guard shows
 *                        whether a COMMIT without an answer took effect.
 *   FAILED_PRECONDITION  a guard failed: the job is in another state, or the attempt or the epoch is over (another
 *                        controller leads). Repeating does not help.
 *   ABORTED              a race (serialisation failure or deadlock) was lost more often than the store retries it
 *   DEADLINE_EXCEEDED    a statement took longer than STORE_STATEMENT_TIMEOUT_MS
 *   RESOURCE_EXHAUSTED   no connection became free in time
 *   NOT_FOUND, INVALID_ARGUMENT as usual
 *   INTERNAL             PostgreSQL refused the statement for what it is: an error of this program or of the schema
 *
 * Threads: every function may be called from any thread and blocks; struct store_memory, store_leader and store_report
 * objects belong to one thread at a time. Times are microseconds since 1970 UTC; 0 means none. */
#ifndef SERVICE_STORE_STORE_H
#define SERVICE_STORE_STORE_H

#include "base/cleanup.h"
#include "base/histogram.h"
#include "base/status.h"

#include <stdint.h>

/* The server cancels a statement that takes longer. */
#define STORE_STATEMENT_TIMEOUT_MS 5000
/* The same for the rows that a new leader reads before it leads: on a slow disk that takes long, and nothing else waits
 * for it. */
#define STORE_RECOVERY_TIMEOUT_MS 60000

struct store;
struct store_options {
    const char *conninfo; /* libpq's: "host=/run/ty dbname=trainyard", or a postgresql:// URI */
    int connections;      /* at most; 0 = 8 */
    int patience_ms;      /* how long a call retries before it returns UNAVAILABLE; 0 = 2000, < 0 = not at all */
};

/* Checks that the database answers and has this program's schema; if not, FAILED_PRECONDITION with what to do. Opens
 * one connection; the others are opened when they are needed. */
MUST_CHECK status_t store_open(const struct store_options *options, struct store **ret, struct err *e);
struct store *store_close(struct store *s); /* all calls must have returned */
CLEANUP_DEFINE(struct store *, store_close)

/* Keeps one connection for the calling thread from now on, whose calls then never wait for those of other threads: the
 * calls of the others use at most one less than `connections`, and return RESOURCE_EXHAUSTED if none of those becomes
 * free in time. One thread may have it, with one call at a time; a later thread takes its place. */
void store_reserve(struct store *s);

/* For /metrics. Counters grow from 0 at store_open. */
struct store_stats {
    int connections, busy; /* open now; in use of these */
    int64_t transactions;  /* that succeeded */
    int64_t failures;      /* that failed */
    int64_t reconnects;
    int64_t records, points, log_lines; /* stored from reports */
};
void store_stats(struct store *s, struct store_stats *ret);

/* The times of transactions, with those that failed; of single statements outside of pipelines; of writes of reports.
 * Valid as long as the store. */
struct store_times {
    struct histogram transactions, statements, reports;
};
const struct store_times *store_times(const struct store *s);

/* Checks with one round trip that PostgreSQL answers. */
MUST_CHECK status_t store_ping(struct store *s, struct err *e);

/* Owns the strings and arrays that rows point to: they stay valid until the memory is freed. One memory may be used for
 * any number of calls. Its size is that of a page of rows (base/alloc.h). */
struct store_memory;
struct store_memory *store_memory_new(void);
struct store_memory *store_memory_free(struct store_memory *m);
CLEANUP_DEFINE(struct store_memory *, store_memory_free)

#endif
