/* The numbers that stand in state columns. They are those of the messages in trainyard.v1, so that a row converts by a
 * cast; the migrations' CHECKs repeat them. */
#ifndef SERVICE_STORE_STATE_H
#define SERVICE_STORE_STATE_H

enum store_job_state {
    STORE_JOB_QUEUED = 1,
    STORE_JOB_STARTING = 2,
    STORE_JOB_RUNNING = 3,
    STORE_JOB_RESTARTING = 4,
    STORE_JOB_PREEMPTING = 5,
    STORE_JOB_PAUSING = 6,
    STORE_JOB_PAUSED = 7,
    STORE_JOB_CANCELLING = 8,
    STORE_JOB_SUCCEEDED = 9, /* this and those below have ended */
    STORE_JOB_FAILED = 10,
    STORE_JOB_CANCELLED = 11,
};

enum store_attempt_state {
    STORE_ATTEMPT_STARTING = 1,
    STORE_ATTEMPT_RUNNING = 2,
    STORE_ATTEMPT_ENDING = 3,
    STORE_ATTEMPT_ENDED = 4,
};

enum store_checkpoint_state {
    STORE_CHECKPOINT_WRITING = 1,
    STORE_CHECKPOINT_COMMITTED = 2,
    STORE_CHECKPOINT_CORRUPT = 3,
    STORE_CHECKPOINT_DELETING = 4,
    STORE_CHECKPOINT_DELETED = 5,
};

enum store_executor_state {
    STORE_EXECUTOR_ATTACHED = 1,
    STORE_EXECUTOR_LOST = 2,
};

/* "QUEUED" etc.; "UNKNOWN" for a number that is none. Static storage. */
const char *store_job_state_name(int state);

#endif
