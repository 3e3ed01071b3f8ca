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
#include "service/scheduler/explain.h"
#include "service/store/job.h"
#include "service/store/store.h"

#include <stdbool.h>

struct controller;
struct planner; /* planner.h */

struct controller_options {
    const char *database;          /* libpq's conninfo */
    const char *checkpoints;       /* the directory of jobs that name none; an absolute path */
    int connections;               /* to PostgreSQL; 0 = 16 */
    const char *const *data_roots; /* [n_data_roots] folders whose data a plan may look at */
    size_t n_data_roots;
    int keep_ended_days; /* jobs that ended longer ago are deleted; 0 = they are kept */
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
/* What a handler answers to a mutation that ended with st: UNAVAILABLE where it was refused because its epoch is over,
 * since the database restarted or another controller took the lead. That is no judgement of what was asked for: asked
 * again, it may succeed. */
MUST_CHECK status_t controller_judge(struct controller *c, int64_t epoch, status_t st, struct err *e);
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
struct scheduler_job_row scheduler_row_of(const struct store_job *job);
/* A job's row was stored QUEUED. */
void controller_submitted(struct controller *c, const struct scheduler_job_row *row);
/* Whether a job's row was stored is not known (the answer of PostgreSQL was lost), or it was stored before by a handler
 * that may not have known it: the loop looks for QUEUED rows that it was not told of, within seconds. */
void controller_submitted_perhaps(struct controller *c);
/* Ask the loop, and wait for its answer: FAILED_PRECONDITION for an illegal move, NOT_FOUND for a job that was deleted
 * meanwhile, with *ret_reason for programs (static: JOB_ENDED, JOB_NOT_CANCELLABLE, JOB_NOT_PAUSABLE, JOB_NOT_PAUSED,
 * JOB_NOT_FAILED, JOB_ORIGIN_GONE, JOB_NOT_FOUND; else NULL); DEADLINE_EXCEEDED when the database was away for so long
 * (the move may still happen). Asking again with the same request_id, of at most CONTROLLER_REQUEST_BYTES ("" = none),
 * is ST_OK and moves nothing. */
#define CONTROLLER_REQUEST_BYTES 128
MUST_CHECK status_t controller_cancel(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                      const char **ret_reason, struct err *e);
MUST_CHECK status_t controller_pause(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                     const char **ret_reason, struct err *e);
MUST_CHECK status_t controller_resume(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                      const char **ret_reason, struct err *e);
MUST_CHECK status_t controller_retry(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                     const char **ret_reason, struct err *e);

/* What the scheduler says of a job now; free(*ret). DEADLINE_EXCEEDED when the loop does not answer in time. */
MUST_CHECK status_t controller_explain(struct controller *c, int64_t job, deadline_ms_t deadline,
                                       struct scheduler_explanation **ret, struct err *e);

/* Marks an executor as one that gets no more ranks, or changes the mark, as store_executor_drain says; takes it away.
 * Returns when the loop knows, which has then ordered what follows. DEADLINE_EXCEEDED: the mark may stand. */
MUST_CHECK status_t controller_drain(struct controller *c, const char *executor, const char *reason,
                                     const char *requester, bool now, deadline_ms_t deadline, struct err *e);
MUST_CHECK status_t controller_undrain(struct controller *c, const char *executor, deadline_ms_t deadline,
                                       struct err *e);

/* Pins a checkpoint, or takes the pin away; deletes one, as store_checkpoint_delete says, and its files soon after. */
MUST_CHECK status_t controller_checkpoint_pin(struct controller *c, int64_t job, int64_t id, bool pinned,
                                              struct err *e);
MUST_CHECK status_t controller_checkpoint_delete(struct controller *c, int64_t job, int64_t id, struct err *e);
/* Deletes a job that has ended: no question finds it any more, and what it has is removed soon. FAILED_PRECONDITION as
 * store_job_delete says. */
MUST_CHECK status_t controller_delete(struct controller *c, int64_t job, struct err *e);

/* From the control stream of this start of an agent, but for heartbeats (dispatch_hear). The message is copied.
 * RESOURCE_EXHAUSTED: the loop is behind; close the stream, the agent tells everything again at its next attach. */
MUST_CHECK status_t controller_agent_said(struct controller *c, const char *executor, int64_t incarnation,
                                          const Trainyard__V1__AgentMessage *m, struct err *e);

/* For /metrics; the scheduler's counts are those of the last tick. */
struct controller_stats {
    struct scheduler_counts scheduler;
    bool leads;
    int64_t epoch;
    int attached, events_waiting;
    int64_t events, actions; /* since the start */
    int64_t loop_busy_ns;
};
void controller_stats(struct controller *c, struct controller_stats *ret);

#endif
