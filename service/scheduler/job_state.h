/* The states of a job and the one table of edges between them. job_state_edge allows or refuses a move; SQL repeats
 * the guard, so that a move that is not in this table cannot be stored either.
 *
 *   QUEUED -> STARTING -> RUNNING -> SUCCEEDED | FAILED, or CANCELLING -> CANCELLED, with the detours RESTARTING,
 *   PREEMPTING, PAUSING and PAUSED. SUCCEEDED and CANCELLED are final. Only a retry leaves FAILED; only a resume or a
 *   cancel leaves PAUSED.
 *
 * The numbers are those of trainyard.v1.Job.State and of the database (service/controller/row_state.c). */
#ifndef SERVICE_SCHEDULER_JOB_STATE_H
#define SERVICE_SCHEDULER_JOB_STATE_H

#include <stdbool.h>

enum job_state {
    JOB_STATE_NONE = 0,
    JOB_STATE_QUEUED = 1,
    JOB_STATE_STARTING = 2,
    JOB_STATE_RUNNING = 3,
    JOB_STATE_RESTARTING = 4,
    JOB_STATE_PREEMPTING = 5,
    JOB_STATE_PAUSING = 6,
    JOB_STATE_PAUSED = 7,
    JOB_STATE_CANCELLING = 8,
    JOB_STATE_SUCCEEDED = 9,
    JOB_STATE_FAILED = 10,
    JOB_STATE_CANCELLED = 11,
};

/* Why an edge is taken. */
enum job_cause {
    JOB_CAUSE_PLACED,         /* the gang got its slots */
    JOB_CAUSE_ALL_JOINED,     /* every rank has joined */
    JOB_CAUSE_ATTEMPT_FAILED, /* a rank ended, or a host was lost, before all was done */
    JOB_CAUSE_NO_SLOTS,       /* the gang must wait for slots again */
    JOB_CAUSE_NO_RETRY,       /* a failure that no retry helps, or no restarts are left */
    JOB_CAUSE_ORIGIN_GONE,    /* the job's origin is gone; the store finds this during the move */
    JOB_CAUSE_DONE,           /* every rank finished and the final checkpoint is committed */
    JOB_CAUSE_CANCEL_ASKED,
    JOB_CAUSE_STOPPED, /* every rank has ended after a cancel, a pause or a preemption */
    JOB_CAUSE_PREEMPTED,
    JOB_CAUSE_PAUSE_ASKED,
    JOB_CAUSE_RESUME_ASKED,
    JOB_CAUSE_RETRY_ASKED,
    JOB_CAUSES,
};

/* True when the table has the edge for this cause. */
bool job_state_edge(enum job_state from, enum job_state to, enum job_cause cause);

/* SUCCEEDED, FAILED or CANCELLED: nothing runs, and the scheduler has forgotten the job. */
bool job_state_final(enum job_state state);

/* For example "QUEUED"; "NONE" for an invalid state. Static storage. */
const char *job_state_name(enum job_state state);

#endif
