/* Attempts of a job, and where their ranks are. */
#ifndef SERVICE_STORE_ATTEMPT_H
#define SERVICE_STORE_ATTEMPT_H

#include "service/store/job.h"

struct store_attempt_new {
    const char *request_id;
    int64_t job;
    int attempt; /* the job's + 1 */
    enum store_job_state from;
    int world_size;
    const char *const *executors; /* [world_size] one id a rank */
    const char *reason;           /* the event's sentence; "" = none */
};
/* The checkpoint that the attempt starts from: the job's newest COMMITTED one, else the one that it was forked from,
 * while that is COMMITTED. */
struct store_attempt_start {
    int64_t from_step;          /* 0 = from the start */
    int64_t from_checkpoint;    /* 0 = none */
    const char *directory;      /* of that checkpoint; "" = none */
    bool forked;                /* that checkpoint is another job's */
    const char *init_directory; /* of the checkpoint whose weights the job begins with; "" = none */
    const char *refused;        /* why the job has FAILED in place of starting; "" = it starts */
    int64_t event;
};
/* Moves the job from `from` to STARTING and inserts the attempt with its placements, all in one transaction.
 * FAILED_PRECONDITION: the job is in another state, or its attempt is not attempt - 1, or that one has not ended.
 * A job without a COMMITTED checkpoint, when what it began with is COMMITTED no more, must not begin with something
 * else: in the same transaction the attempt ends and the job becomes FAILED, with `refused` as the reason. */
MUST_CHECK status_t store_attempt_create(struct store *s, struct store_memory *m, int64_t epoch,
                                         const struct store_attempt_new *attempt, struct store_attempt_start *ret,
                                         struct err *e);

/* A rank's process, as the agent says it. Repeating it changes nothing. FAILED_PRECONDITION ("fenced") when the attempt
 * is not the job's current one. */
MUST_CHECK status_t store_rank_started(struct store *s, int64_t epoch, int64_t job, int attempt, int rank, int pid,
                                       int64_t pid_start_time, struct err *e);

struct store_rank_end {
    int rank;
    int exit_code, signal, cause; /* as in RankEnd */
    const char *message;
    int64_t last_sequence, step, time_us;
};
/* Ends as agents tell them, for the record; the first one of a rank stays. Writes an event "rank_ended" for each new
 * one.
 */
MUST_CHECK status_t store_rank_ended(struct store *s, int64_t epoch, int64_t job, int attempt,
                                     const struct store_rank_end *ends, size_t n, struct err *e);

/* No process of the attempt is left, or its hosts are fenced: the attempt's row gets its end, and the job's its count
 * of restarts, which this end decides. Idempotent. */
MUST_CHECK status_t store_attempt_end(struct store *s, int64_t epoch, int64_t job, int attempt, int restarts,
                                      const char *reason, struct err *e);

struct store_placement {
    int rank;
    const char *executor;
    int pid;
    int64_t pid_start_time;
};
struct store_attempt {
    int number;
    enum store_attempt_state state;
    int64_t from_step, from_checkpoint, from_job; /* from_job: whose checkpoint it is; 0 = none */
    const char *reason;
    int64_t create_time_us, start_time_us, end_time_us;
    const struct store_placement *placements; /* by rank */
    size_t n_placements;
};
/* Oldest first. */
MUST_CHECK status_t store_attempt_list(struct store *s, struct store_memory *m, int64_t job, struct store_attempt **ret,
                                       size_t *ret_n, struct err *e);

/* That one, from 1 on. NOT_FOUND without it. */
MUST_CHECK status_t store_attempt_get(struct store *s, struct store_memory *m, int64_t job, int number,
                                      struct store_attempt *ret, struct err *e);

/* Everything of (job, attempt, rank) up to here is stored; 0 when nothing is. */
MUST_CHECK status_t store_rank_sequence(struct store *s, int64_t job, int attempt, int rank, int64_t *ret,
                                        struct err *e);

#endif
