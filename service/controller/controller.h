/* The controller, as the handlers of service/rpc and the pages of service/http use it.
 *
 * Handlers run on the threads of gRPC and libmicrohttpd. They read the store themselves and write rows that do not move
 * a job, such as a new job's row. Requests that move a job go to the loop, the only owner of the scheduler.
 *
 * All functions are thread-safe. */
#ifndef SERVICE_CONTROLLER_CONTROLLER_H
#define SERVICE_CONTROLLER_CONTROLLER_H

#include "base/clock.h"
#include "base/histogram.h"
#include "base/status.h"
#include "service/controller/checkpoint_files.h"
#include "service/controller/dispatch.h"
#include "service/controller/ingest.h"
#include "service/controller/job_create.h"
#include "service/controller/job_watchers.h"
#include "service/controller/planner.h"
#include "service/controller/progress.h"
#include "service/controller/sample.h"
#include "service/scheduler/explain.h"
#include "service/store/checkpoint.h"
#include "service/store/job.h"
#include "service/store/queue.h"
#include "service/store/store.h"

#include <stdbool.h>

struct check_cache; /* check_cache.h */
struct authority;   /* authority.h */
struct keyring;     /* keyring.h */
struct notifier;    /* service/notify/notifier.h */
struct spec_checks; /* spec_check.h */
struct sweeps;      /* sweeps.h */
struct controller;

enum { CONTROLLER_MAX_ROOTS = 17 };
#define CONTROLLER_CODE_BYTES (16LL << 30)
/* Jobs that have not ended: the scheduler keeps some 400 bytes of each. */
#define CONTROLLER_MAX_JOBS 1000000
/* Those with a row, and those that only jobs name: the scheduler looks at each of them when it starts jobs. While there
 * are as many, a job needs a queue that was created. */
#define CONTROLLER_MAX_QUEUES 2000

struct controller_options {
    const char *database;    /* libpq's conninfo */
    const char *checkpoints; /* the directory for jobs that name none; an absolute path */
    /* [n_checkpoint_roots] A job's own directory must be below `checkpoints` or below one of these folders. Absolute
     * paths; at most CONTROLLER_MAX_ROOTS - 1 count. */
    const char *const *checkpoint_roots;
    size_t n_checkpoint_roots;
    int connections;                     /* to PostgreSQL; 0 = 32 */
    int max_jobs;                        /* that have not ended: no more are created; 0 = CONTROLLER_MAX_JOBS */
    struct planner_data plan_data;       /* the data that a plan may read */
    int keep_ended_days;                 /* jobs that ended more days ago are deleted; 0 = all are kept */
    int forget_lost_days;                /* executors that were lost more days ago are forgotten; 0 = all are kept */
    int audit_days;                      /* entries of the audit log that are older are deleted; 0 = all are kept */
    int elastic_settle_s;                /* how long slots are free before an elastic job grows; 0 = 30 */
    int checkpoint_wait_s;               /* how long a job waits for a checkpoint that cannot be read; 0 = 600 */
    bool fixed_queues;                   /* a job of a queue that was not created is refused */
    int64_t code_bytes;                  /* the maximum of all archives of code; 0 = CONTROLLER_CODE_BYTES */
    const char *notify_file;             /* the targets of notifications; NULL: none */
    const char *const *secret_key_files; /* [n_secret_key_files] keyring.h; 0: no secrets can be set or used */
    size_t n_secret_key_files;
    struct authority *authority; /* signs certificates of new hosts; NULL: none can join. Kept by pointer */
};

/* Opens the database and starts as a standby. The controller leads once it has the leader's lock. FAILED_PRECONDITION:
 * the database has the schema of another version. */
MUST_CHECK status_t controller_open(const struct controller_options *options, struct controller **ret, struct err *e);
/* Stops the controller. Agents keep their workers and connect again. No handler may be running. */
struct controller *controller_close(struct controller *c);
CLEANUP_DEFINE(struct controller *, controller_close)

/* ST_OK while this controller leads; UNAVAILABLE with the reason otherwise. Each handler that needs the leader calls
 * this first. *ret_epoch is an argument of every write to the store. */
MUST_CHECK status_t controller_leads(struct controller *c, int64_t *ret_epoch, struct err *e);
/* Returns the status that a handler returns after a write that ended with st. UNAVAILABLE: the write was refused
 * because its epoch is over, after the database restarted or another controller took the lead; the client may try
 * again. Otherwise st. */
MUST_CHECK status_t controller_write_status(struct controller *c, int64_t epoch, status_t st, struct err *e);
/* Blocks until this controller leads, or until the deadline. For tests only, because the program must handle signals
 * meanwhile. */
MUST_CHECK status_t controller_wait_leading(struct controller *c, deadline_ms_t deadline, struct err *e);
/* True after leadership was lost: the program should end and be started again. */
bool controller_deposed(struct controller *c);

struct store *controller_store(struct controller *c);
struct job_watchers *controller_job_watchers(struct controller *c);
struct dispatch *controller_dispatch(struct controller *c);
struct ingest *controller_ingest(struct controller *c);
struct samples *controller_samples(struct controller *c);
struct spec_checks *controller_spec_checks(struct controller *c);
struct check_cache *controller_check_cache(struct controller *c);
struct progress *controller_progress(struct controller *c);
struct notifier *controller_notifier(struct controller *c);
struct planner *controller_planner(struct controller *c);
struct sweeps *controller_sweeps(struct controller *c);
int64_t controller_code_bytes(const struct controller *c);
const struct keyring *controller_keyring(const struct controller *c);
const struct authority *controller_authority(const struct controller *c);
/* Where checkpoints may be. Valid as long as the controller. */
const struct checkpoint_place *controller_place(const struct controller *c);

/* Converts a job's row to the row that the scheduler reads. */
struct scheduler_job_row scheduler_row_of(const struct store_job *job);
/* Whether the attached executors have enough slots of the job's kind, free or not. FAILED_PRECONDITION: they do not;
 * the message says why. DEADLINE_EXCEEDED: the loop did not answer in time. Cheap if they have enough. */
MUST_CHECK status_t controller_fits(struct controller *c, const struct scheduler_job_row *row, deadline_ms_t deadline,
                                    struct err *e);
/* The one way to a new job: stores its row and passes it to the loop. The statuses are those of store_job_create,
 * UNAVAILABLE if this controller does not lead, or no longer: then the job may be stored, RESOURCE_EXHAUSTED if as
 * many jobs as allowed have not ended, or if there are CONTROLLER_MAX_QUEUES and its queue was not created, and
 * FAILED_PRECONDITION with fixed_queues if its queue was not created. */
MUST_CHECK status_t controller_create(struct controller *c, const struct job_creation *creation,
                                      struct job_created *ret, struct err *e);
/* Passes a job whose row was stored as QUEUED to the loop. */
void controller_submitted(struct controller *c, const struct scheduler_job_row *row);
/* Call if it is uncertain whether a job's row was stored: the reply of PostgreSQL was lost, perhaps in an earlier call
 * for the same job. Within seconds, the loop scans for QUEUED rows that it does not know. */
void controller_submitted_perhaps(struct controller *c);
/* The functions below send a request to the loop and wait for the reply. FAILED_PRECONDITION: the job's state does not
 * allow the move. NOT_FOUND: the job was deleted meanwhile. DEADLINE_EXCEEDED: no reply in time, for example because
 * the database is unreachable; the move may still happen.
 *
 * *ret_reason: the reason of a refusal for programs; static storage: JOB_ENDED, JOB_NOT_CANCELLABLE, JOB_NOT_PAUSABLE,
 * JOB_NOT_PAUSED, JOB_NOT_FAILED, JOB_ORIGIN_GONE, JOB_NOT_FOUND; else NULL. request_id: at most
 * CONTROLLER_REQUEST_BYTES; "" = none. After a success, a request with the same id returns ST_OK and moves nothing. */
#define CONTROLLER_REQUEST_BYTES 128
MUST_CHECK status_t controller_cancel(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                      const char **ret_reason, struct err *e);
MUST_CHECK status_t controller_pause(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                     const char **ret_reason, struct err *e);
MUST_CHECK status_t controller_resume(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                      const char **ret_reason, struct err *e);
MUST_CHECK status_t controller_retry(struct controller *c, int64_t job, const char *request_id, deadline_ms_t deadline,
                                     const char **ret_reason, struct err *e);

/* Explains why a job waits; free(*ret). DEADLINE_EXCEEDED: the loop did not answer in time. */
MUST_CHECK status_t controller_explain(struct controller *c, int64_t job, deadline_ms_t deadline,
                                       struct scheduler_explanation **ret, struct err *e);

/* Sets or changes the drain mark of an executor (store_executor_drain), so that it gets no more ranks; removes the
 * mark. Returns after the loop has handled the change and sent the orders that follow. DEADLINE_EXCEEDED: the mark may
 * be stored. */
MUST_CHECK status_t controller_drain(struct controller *c, const char *executor, const char *reason,
                                     const char *requester, bool now, deadline_ms_t deadline, struct err *e);
MUST_CHECK status_t controller_undrain(struct controller *c, const char *executor, deadline_ms_t deadline,
                                       struct err *e);

/* Creates, changes or deletes the row of a queue (store_queue_create, _set, _delete). Returns after the loop has read
 * the row. DEADLINE_EXCEEDED: the change may be stored. */
MUST_CHECK status_t controller_queue_create(struct controller *c, const char *name,
                                            const struct store_queue_settings *settings, deadline_ms_t deadline,
                                            struct err *e);
MUST_CHECK status_t controller_queue_set(struct controller *c, const char *name, store_queue_change *change,
                                         const void *ctx, deadline_ms_t deadline, struct err *e);
MUST_CHECK status_t controller_queue_delete(struct controller *c, const char *name, deadline_ms_t deadline,
                                            struct err *e);

/* Pins or unpins a checkpoint; deletes one (store_checkpoint_delete), and its files soon after. */
MUST_CHECK status_t controller_checkpoint_pin(struct controller *c, int64_t job, int64_t id, bool pinned,
                                              struct err *e);
/* Stores the result of reading a whole checkpoint (store_checkpoint_verified). */
MUST_CHECK status_t controller_checkpoint_verified(struct controller *c, int64_t job, int64_t id,
                                                   enum store_check_result result, const char *reason, struct err *e);
MUST_CHECK status_t controller_checkpoint_delete(struct controller *c, int64_t job, int64_t id, struct err *e);
/* Deletes a job that has ended: no query finds it any more, and its files and rows are removed soon.
 * FAILED_PRECONDITION: see store_job_delete. */
MUST_CHECK status_t controller_delete(struct controller *c, int64_t job, struct err *e);

/* Whether the executor may attach: this controller leads the cluster that the executor obeys, and the database knows
 * the last election whose leader the executor has obeyed. UNAVAILABLE: attach again, perhaps to another controller.
 * FAILED_PRECONDITION: the executor belongs to another cluster. INVALID_ARGUMENT: no leader can have had that epoch. */
MUST_CHECK status_t controller_admit(struct controller *c, const Trainyard__V1__AgentHello *hello, struct err *e);
/* Queues a copy of a message from the control stream that has the ticket (dispatch_attach). A message is dropped if the
 * hello of its stream was refused. Heartbeats go to dispatch_mark_seen instead.
 * RESOURCE_EXHAUSTED: the loop is behind. The caller then closes the stream, and the agent reports everything again at
 * its next attach. */
MUST_CHECK status_t controller_handle_agent_message(struct controller *c, const char *executor, int64_t incarnation,
                                                    uint64_t ticket, const Trainyard__V1__AgentMessage *m,
                                                    struct err *e);

enum controller_lead {
    CONTROLLER_STARTS, /* it has not tried yet */
    CONTROLLER_STANDS_BY,
    CONTROLLER_CANNOT_LEAD, /* no other controller is known to lead, and this one fails to */
    CONTROLLER_LEADS,
};

/* Wakes the loop after the end of a control stream (after dispatch_detach). */
void controller_stream_ended(struct controller *c);

/* For /metrics and /healthz; the scheduler's counts are those of the last tick. */
struct controller_stats {
    struct scheduler_counts scheduler;
    enum controller_lead lead;
    struct err cannot_lead; /* with CONTROLLER_CANNOT_LEAD: why, without the host or user of the database */
    bool leads;
    int64_t epoch;
    int attached, events_waiting;
    int64_t events, actions; /* since the start */
    int64_t loop_busy_ns;
    int64_t restarts[RANK_END_CAUSES]; /* attempts that followed a failed one, by the cause of the failure */
};
void controller_stats(struct controller *c, struct controller_stats *ret);

/* Changes controller_options.max_jobs. */
void controller_set_max_jobs(struct controller *c, int max_jobs);
/* A number that grows as the loop goes on, at least once in the time of the longest statement
 * (STORE_RECOVERY_TIMEOUT_MS and some seconds): for a watchdog. */
int64_t controller_beats(const struct controller *c);

/* How long turns of the loop took, and how long jobs were QUEUED before an attempt. Valid as long as c. */
struct controller_times {
    struct histogram turns, queued;
};
const struct controller_times *controller_times(const struct controller *c);

#endif
