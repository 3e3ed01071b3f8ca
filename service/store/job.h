/* Jobs. The job's row is the one lock for all that belongs to it: attempt, placements, checkpoints, events. Whoever
 * writes any of these takes the job's row first, so that there is one order of locks.
 *
 * Every change of state writes one event (kind "state_changed") in the same transaction. request_id makes a mutation
 * happen once: it stands, unique, in that event's row. A second call with the same id changes nothing and returns what
 * the first returned. The controller makes ids of its own for moves that no client asked for ("epoch-counter"). */
#ifndef SERVICE_STORE_JOB_H
#define SERVICE_STORE_JOB_H

#include "service/store/state.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

struct store_job_new {
    const char *request_id; /* not empty */
    const char *name, *queue;
    int priority;
    int world_size;
    const char *accelerator; /* cpu | cuda */
    int max_restarts;
    int64_t steps;
    int keep_last, keep_best;
    const void *spec; /* the resolved JobSpec, packed; opaque here */
    size_t spec_bytes;
    struct store_origin {
        int64_t job, checkpoint; /* what it begins with; checkpoint 0 = nothing */
        bool weights_only;       /* else the whole state: a fork */
    } origin;
};

struct store_job {
    int64_t id;
    const char *name, *queue;
    enum store_job_state state;
    const char *reason;
    int priority, world_size;
    const char *accelerator;
    int max_restarts, restarts;
    int attempt; /* the current or last one; 0 before the first */
    int64_t steps, step;
    int64_t last_event;
    const char *weights_sha256; /* "" before the last step */
    int64_t create_time_us, start_time_us, end_time_us;
    const void *spec; /* NULL in lists that were asked without */
    size_t spec_bytes;
};

/* Stores a QUEUED job and its first event. *ret_existed: the request_id was known, *ret_job is the first call's job,
 * whatever has become of its origin. *ret_time_us (may be NULL): the new job's create_time; untouched when it existed.
 * With an origin: kept from retention until the new job has a checkpoint of its own or has ended, and told by an event
 * "forked" or "initialised"; FAILED_PRECONDITION unless it is COMMITTED. */
MUST_CHECK status_t store_job_create(struct store *s, int64_t epoch, const struct store_job_new *job, int64_t *ret_job,
                                     bool *ret_existed, int64_t *ret_time_us, struct err *e);

/* NOT_FOUND: "jobs/42 does not exist". */
MUST_CHECK status_t store_job_get(struct store *s, struct store_memory *m, int64_t job, struct store_job *ret,
                                  struct err *e);

/* What a job began with; ret->checkpoint 0 and *ret_step 0 for most. */
MUST_CHECK status_t store_job_origin(struct store *s, int64_t job, struct store_origin *ret, int64_t *ret_step,
                                     struct err *e);

/* Whether an attempt of the job would be refused now, since it has no COMMITTED checkpoint and what it began with is
 * COMMITTED no more; then ret_why is the sentence. */
MUST_CHECK status_t store_job_origin_gone(struct store *s, int64_t job, bool *ret_gone, struct err *ret_why,
                                          struct err *e);

struct store_job_filter {
    int state;         /* 0 = all */
    const char *queue; /* NULL or "" = all */
    int64_t before;    /* only ids below; 0 = from the newest: the page token is the last id of a page */
    int limit;         /* 1..LIMIT_PAGE_SIZE */
    bool with_spec;
};
/* Newest first. */
MUST_CHECK status_t store_job_list(struct store *s, struct store_memory *m, const struct store_job_filter *filter,
                                   struct store_job **ret, size_t *ret_n, struct err *e);

/* The job that a request id made; NOT_FOUND when it was never stored, ALREADY_EXISTS when it did something else. */
MUST_CHECK status_t store_job_requested(struct store *s, const char *request_id, int64_t *ret_job, struct err *e);

/* The job that a request id belongs to; NOT_FOUND when it was never stored. */
MUST_CHECK status_t store_request_find(struct store *s, const char *request_id, int64_t *ret_job, struct err *e);

/* From one state to another. Guards: state = from, attempt = attempt. RUNNING sets start_time once and moves the
 * attempt's row to RUNNING; an ended state sets end_time; CANCELLING and RESTARTING move an attempt that has not ended
 * to ENDING. The rule which moves are legal stands in the scheduler. */
struct store_job_move {
    const char *request_id;
    int64_t job;
    int attempt; /* as the caller knows it; 0 before the first */
    enum store_job_state from, to;
    int restarts;       /* the row's new value */
    const char *reason; /* the job's reason and the event's sentence; "" = none */
};
/* *ret_event (may be NULL): the event's number. */
MUST_CHECK status_t store_job_move(struct store *s, int64_t epoch, const struct store_job_move *move,
                                   int64_t *ret_event, struct err *e);
/* The move from FAILED to QUEUED: end_time and restarts are cleared. FAILED_PRECONDITION as of any move; and, with
 * *ret_origin_gone, for a job without a COMMITTED checkpoint when what it began with is COMMITTED no more, under the
 * lock that retention takes. */
MUST_CHECK status_t store_job_retry(struct store *s, int64_t epoch, const struct store_job_move *move,
                                    bool *ret_origin_gone, struct err *e);

/* Why a QUEUED job waits: its reason, and an event "waiting". Changes nothing once the job has moved on. */
MUST_CHECK status_t store_job_waiting(struct store *s, int64_t epoch, const char *request_id, int64_t job, int attempt,
                                      const char *reason, struct err *e);

/* What a new leader loads: every job that has not ended, with the placement of its attempt when that has not ended. */
struct store_live_job {
    struct store_job job; /* with spec */
    bool attempt_open;    /* its attempt's row is not ENDED */
    int64_t from_step;
    int64_t from_checkpoint;      /* 0 = from the start */
    const char *resume_directory; /* of from_checkpoint; "" */
    bool forked;                  /* from_checkpoint is another job's */
    const char *init_directory;   /* of the checkpoint whose weights it begins with; "" */
    bool final_committed;         /* the attempt's final checkpoint is COMMITTED */
    const char *const *executors; /* [world_size] with attempt_open, else NULL */
    const int *pids;              /* [world_size] 0 = not started */
};
MUST_CHECK status_t store_job_live(struct store *s, struct store_memory *m, struct store_live_job **ret, size_t *ret_n,
                                   struct err *e);

/* Jobs by state, for /metrics: counts[state], 12 entries. */
MUST_CHECK status_t store_job_counts(struct store *s, int64_t counts[12], struct err *e);

#endif
