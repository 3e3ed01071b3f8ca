/* The controller as its services see it: what a handler of service/rpc or a page of service/http may ask of it.
 *
 * Handlers run on the runtime's worker threads. They read the store themselves, write what has one row of its own
 * (a new job) and hand everything that moves a job to the loop, which alone owns the scheduler.
 *
 * All functions are thread-safe. */
#ifndef SERVICE_CONTROLLER_CONTROLLER_H
#define SERVICE_CONTROLLER_CONTROLLER_H

#include "base/clock.h"
#include "base/status.h"
#include "service/controller/dispatch.h"
#include "service/controller/ingest.h"
#include "service/controller/progress.h"
#include "service/controller/sample.h"
#include "service/controller/wake.h"
#include "service/scheduler/scheduler.h"
#include "service/store/job.h"
#include "service/store/store.h"

#include <stdbool.h>

struct controller;
struct planner; /* planner.h */

struct controller_options {
    const char *database;          /* libpq's conninfo */
    const char *checkpoints;       /* the directory of jobs that name none; an absolute path */
    int connections;               /* to PostgreSQL; 0 = 16 */
    const char *const *data_roots; /* [data_roots_n] folders whose data a plan may look at */
    size_t data_roots_n;
};

/* Opens the database and starts as a standby; leading begins when the lock is free. FAILED_PRECONDITION for a schema
 * that is not this program's. */
MUST_CHECK status_t controller_open(const struct controller_options *options, struct controller **ret, struct err *e);
/* Stops: agents keep their workers and dial again. Call when no handler runs any more. */
struct controller *controller_close(struct controller *c);
CLEANUP_DEFINE(struct controller *, controller_close)

/* ST_OK while this controller leads; UNAVAILABLE with the reason otherwise. Each handler that needs the leader asks
 * first. *ret_epoch goes into every mutation of the store. */
MUST_CHECK status_t controller_leads(struct controller *c, int64_t *ret_epoch, struct err *e);
/* Blocks until it leads, or the deadline. For tests: the program has to hear signals meanwhile. */
MUST_CHECK status_t controller_wait_leading(struct controller *c, deadline_ms_t deadline, struct err *e);
/* Leadership was lost to another controller: the program should end and be started again. */
bool controller_deposed(struct controller *c);

struct store *controller_store(struct controller *c);
struct wakes *controller_wakes(struct controller *c);
struct dispatch *controller_dispatch(struct controller *c);
struct ingest *controller_ingest(struct controller *c);
struct samples *controller_samples(struct controller *c);
struct progress *controller_progress(struct controller *c);
struct planner *controller_planner(struct controller *c);
const char *controller_checkpoints(struct controller *c);

/* What the scheduler needs of a job's row. */
struct sched_job_row sched_row_of(const struct store_job *job);
/* A job's row was stored QUEUED. */
void controller_submitted(struct controller *c, const struct sched_job_row *row);
/* Whether a job's row was stored is not known (the answer of PostgreSQL was lost), or it was stored before by a handler
 * that may not have known it: the loop looks for QUEUED rows that it was not told of, within seconds. */
void controller_submitted_perhaps(struct controller *c);
/* Ask the loop, and wait for its answer: FAILED_PRECONDITION for an illegal move, with *ret_reason for programs
 * (static: JOB_ENDED, JOB_NOT_CANCELLABLE, JOB_NOT_FAILED, JOB_ORIGIN_GONE; else NULL); DEADLINE_EXCEEDED when the
 * database was away for so long (the move may still happen). Asking again with the same request_id, of at most
 * CONTROLLER_REQUEST_BYTES ("" = none), is ST_OK and moves nothing. */
#define CONTROLLER_REQUEST_BYTES 128
MUST_CHECK status_t controller_cancel(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                      const char **ret_reason, struct err *e);
MUST_CHECK status_t controller_retry(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                     const char **ret_reason, struct err *e);

/* From the control stream of this start of an agent, but for heartbeats (dispatch_hear). The message is copied.
 * RESOURCE_EXHAUSTED: the loop is behind; close the stream, the agent tells everything again at its next attach. */
MUST_CHECK status_t controller_agent_said(struct controller *c, const char *executor, int64_t incarnation,
                                          const Trainyard__V1__AgentMessage *m, struct err *e);

/* For /metrics; the scheduler's counts are those of the last tick. */
struct controller_stats {
    struct sched_counts scheduler;
    bool leads;
    int64_t epoch;
    int attached, events_waiting;
    int64_t events, actions; /* since the start */
    int64_t loop_busy_ns;
};
void controller_stats(struct controller *c, struct controller_stats *ret);

#endif
