/* Attempts of a job, and the placement of their ranks. */
#ifndef SERVICE_STORE_ATTEMPT_H
#define SERVICE_STORE_ATTEMPT_H

#include "service/store/job.h"

struct store_attempt_new {
    const char *request_id;
    int64_t job;
    int attempt; /* the job's + 1 */
    enum store_job_state from;
    int world_size;
    const char *const *executors; /* [world_size] the executor of each rank */
    const char *reason;           /* the event's sentence; "" = none */
    const char *refuse;           /* why the job FAILED instead; NULL: it starts */
};
/* The checkpoint that the attempt starts from: the job's newest COMMITTED one, else the one that the job was forked
 * from if that is COMMITTED. */
struct store_attempt_start {
    int64_t from_step;          /* 0: from the start */
    int64_t from_checkpoint;    /* 0 = none */
    const char *directory;      /* of that checkpoint; "" = none */
    bool forked;                /* the checkpoint belongs to another job */
    const char *init_directory; /* of the checkpoint whose weights the job begins with; "" = none */
    const char *refused;        /* why the job FAILED instead of starting; "": it starts */
    double queued_seconds;      /* how long the job was QUEUED before the attempt; < 0: it was not */
    const void *spec;           /* the job's packed spec */
    size_t spec_bytes;
    int64_t event;
};
/* Moves the job from `from` to STARTING and inserts the attempt with its placements, all in one transaction.
 * FAILED_PRECONDITION: the job is in another state, or its attempt is not attempt - 1, or that one has not ended. A job
 * without a COMMITTED checkpoint must not start if the checkpoint that it began with is no longer COMMITTED: in the
 * same transaction the attempt ends and the job becomes FAILED, with `refused` as the reason. The same with
 * attempt->refuse as the reason. */
MUST_CHECK status_t store_attempt_create(struct store *s, struct store_memory *m, int64_t epoch,
                                         const struct store_attempt_new *attempt, struct store_attempt_start *ret,
                                         struct err *e);

/* An agent's report about the process of a rank: that it has started (pid > 0), or only its number of threads. */
struct store_rank_start {
    int64_t job;
    int attempt, rank;
    int pid; /* 0: unchanged */
    int64_t pid_start_time;
    int threads;          /* 0: unknown, unchanged */
    const char *executor; /* the sender */
};
/* The limit of one call, which is one statement. */
#define STORE_MAX_RANK_STARTS 1000
/* Writes the reports in one transaction; of several for one rank the last one counts. Only rows that differ are
 * written. A report is ignored if its attempt has ended, is not the job's current one, or has placed the rank
 * elsewhere. The threads of a rank that has ended are ignored. */
MUST_CHECK status_t store_rank_starts(struct store *s, int64_t epoch, const struct store_rank_start *ranks, size_t n,
                                      struct err *e);

struct store_rank_end {
    int rank;
    int exit_code, signal, cause; /* as in RankEnd */
    const char *message;
    int64_t last_sequence, step, time_us;
};
/* Stores how ranks ended, as the agent of the executor reported. The first end of a rank is kept. The end of a rank
 * that the attempt has placed on another executor is ignored. Writes an event "rank_ended" for each new end. */
MUST_CHECK status_t store_rank_ended(struct store *s, int64_t epoch, const char *executor, int64_t job, int attempt,
                                     const struct store_rank_end *ends, size_t n, struct err *e);

/* Ends an attempt of which no process is left, or whose hosts are fenced, and stores the job's new number of restarts.
 * Idempotent. */
MUST_CHECK status_t store_attempt_end(struct store *s, int64_t epoch, int64_t job, int attempt, int restarts,
                                      const char *reason, struct err *e);

struct store_placement {
    int rank;
    const char *executor;
    int pid;
    int64_t pid_start_time;
    int threads;          /* 0: unknown */
    const char *hostname; /* of its executor; "": unknown */
};
struct store_attempt {
    int number;
    enum store_attempt_state state;
    int64_t from_step, from_checkpoint, from_job; /* from_job: the job of the checkpoint; 0: none */
    int world_size;                               /* ranks */
    const char *reason;
    int64_t create_time_us, start_time_us, end_time_us;
    const struct store_placement *placements; /* by rank */
    size_t n_placements;
};
/* The newest STORE_ATTEMPTS_LISTED, oldest first. Older attempts have no placements once those that are newer have
 * STORE_RANKS_LISTED ranks together: all of it fits into a message (LIMIT_RPC_MESSAGE_BYTES). */
#define STORE_ATTEMPTS_LISTED 1000
#define STORE_RANKS_LISTED    6144
MUST_CHECK status_t store_attempt_list(struct store *s, struct store_memory *m, int64_t job, struct store_attempt **ret,
                                       size_t *ret_n, struct err *e);

/* One attempt, from number 1 on. NOT_FOUND without it. */
MUST_CHECK status_t store_attempt_get(struct store *s, struct store_memory *m, int64_t job, int number,
                                      struct store_attempt *ret, struct err *e);

/* The high-water mark of (job, attempt, rank): all records up to it are stored; 0: none. */
MUST_CHECK status_t store_rank_sequence(struct store *s, int64_t job, int attempt, int rank, int64_t *ret,
                                        struct err *e);

#endif
