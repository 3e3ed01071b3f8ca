/* Jobs. The job's row is the lock of everything that belongs to the job: attempts, placements, checkpoints, events.
 * Each transaction that writes any of these locks the job's row first, so that there is one order of locks.
 *
 * Every change of state writes one event (kind "state_changed") in the same transaction. request_id makes a mutation
 * happen only once: the event's row stores it, and it is unique. A second call with the same id changes nothing and
 * returns the result of the first. The controller makes ids ("epoch-counter") for moves that no client requested. */
#ifndef SERVICE_STORE_JOB_H
#define SERVICE_STORE_JOB_H

#include "service/store/state.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

enum { STORE_DIGEST_BYTES = 32, STORE_JOB_LABELS_MAX = 64 };

/* The project of the jobs that name none. */
#define STORE_PROJECT_DEFAULT "default"

struct store_job_label {
    const char *key, *value;
};

struct store_job_new {
    const char *request_id;        /* not empty */
    const uint8_t *request_digest; /* STORE_DIGEST_BYTES that identify the request; NULL: unknown */
    const char *name, *queue;
    const char *user;    /* who submits it; NULL: not known */
    const char *project; /* NULL or "": STORE_PROJECT_DEFAULT */
    const struct store_job_label *labels;
    size_t n_labels; /* at most STORE_JOB_LABELS_MAX; no key twice */
    int priority;
    int world_size, max_world_size; /* ranks that it needs, and the most that it takes; equal unless it is elastic */
    bool stops_at_step;             /* its ranks stop after one step, at which they save */
    const char *accelerator;        /* cpu | cuda */
    uint32_t needs; /* the features that its executors must have; the store does not know their meaning */
    int max_restarts;
    int64_t steps; /* 0: not known, as of a program */
    int keep_last, keep_best;
    const void *spec; /* the resolved JobSpec, packed; opaque here */
    size_t spec_bytes;
    struct store_origin {
        int64_t job, checkpoint; /* the checkpoint that the job begins with; checkpoint 0: none */
        bool weights_only;       /* false: the whole state, which is a fork */
    } origin;
    const uint8_t *code; /* the SHA-256 of the archive of its program's code (code.h); NULL: none */
    int64_t sweep;       /* the job is a trial of it (sweep_trial.h); 0: none */
    int trial;
};

struct store_job {
    int64_t id;
    const char *name, *queue, *user, *project;
    enum store_job_state state;
    const char *reason;
    int priority, world_size, max_world_size;
    bool stops_at_step;
    const char *accelerator;
    uint32_t needs;
    int max_restarts, restarts;
    int attempt; /* the current or last one; 0 before the first */
    int64_t steps, step;
    int64_t last_event;
    const char *weights_sha256; /* "" before the last step */
    int64_t create_time_us, start_time_us, end_time_us;
    int64_t records_lost; /* stored records that a rollback of the database lost; events name them */
    const void *spec;     /* NULL in lists without with_spec */
    size_t spec_bytes;
};

/* Stores a QUEUED job and its first event. *ret_existed: the request_id was known, and *ret_job is the first call's
 * job, even if its origin no longer exists; ALREADY_EXISTS if that call requested something else. *ret_time_us (may be
 * NULL): the new job's create_time; untouched if the job existed. An origin must be COMMITTED (else
 * FAILED_PRECONDITION). Garbage collection keeps it until the new job has a checkpoint of its own or has ended. An
 * event "forked" or "initialised" names it. An archive of code must be complete (else FAILED_PRECONDITION). A
 * trial must be the next one of a RUNNING sweep (else FAILED_PRECONDITION). */
MUST_CHECK status_t store_job_create(struct store *s, int64_t epoch, const struct store_job_new *job, int64_t *ret_job,
                                     bool *ret_existed, int64_t *ret_time_us, struct err *e);

/* NOT_FOUND: "jobs/42 does not exist". */
MUST_CHECK status_t store_job_get(struct store *s, struct store_memory *m, int64_t job, struct store_job *ret,
                                  struct err *e);

/* The project of a job, also if the job is marked as deleted. *ret_found is false if there is no such job. */
MUST_CHECK status_t store_job_project(struct store *s, struct store_memory *m, int64_t job, const char **ret,
                                      bool *ret_found, struct err *e);

/* The checkpoint that a job began with; ret->checkpoint 0 and *ret_step 0 if there is none. */
MUST_CHECK status_t store_job_origin(struct store *s, int64_t job, struct store_origin *ret, int64_t *ret_step,
                                     struct err *e);

/* Whether an attempt of the job would be refused now: the job has no COMMITTED checkpoint, and the one that it began
 * with is no longer COMMITTED. Then ret_why is the sentence. */
MUST_CHECK status_t store_job_origin_gone(struct store *s, int64_t job, bool *ret_gone, struct err *ret_why,
                                          struct err *e);

/* The job that a request id created. NOT_FOUND if the id was never stored. ALREADY_EXISTS, with a sentence that names
 * the job, if the id did something else, or if the request had another digest. digest NULL: any. */
MUST_CHECK status_t store_job_requested(struct store *s, const char *request_id, const uint8_t *digest,
                                        int64_t *ret_job, struct err *e);

/* The job that a request id belongs to; NOT_FOUND if the id was never stored. */
MUST_CHECK status_t store_request_find(struct store *s, const char *request_id, int64_t *ret_job, struct err *e);

/* From one state to another. Guards: state = from, attempt = attempt. RUNNING sets start_time once and moves the
 * attempt's row to RUNNING. A final state sets end_time. CANCELLING and RESTARTING move an attempt that has not ended
 * to ENDING. The scheduler decides which moves are legal. */
struct store_job_move {
    const char *request_id;
    int64_t job;
    int attempt; /* the current one for the caller; 0 before the first */
    enum store_job_state from, to;
    int restarts;       /* the row's new value */
    const char *reason; /* the job's reason and the event's sentence; "": none, but from CANCELLING the reason stays */
};
/* *ret_event (may be NULL): the event's number. */
MUST_CHECK status_t store_job_move(struct store *s, int64_t epoch, const struct store_job_move *move,
                                   int64_t *ret_event, struct err *e);
/* The move from FAILED to QUEUED: end_time and restarts are cleared. FAILED_PRECONDITION as for any move, and, with
 * *ret_origin_gone, if the job has no COMMITTED checkpoint and the one that it began with is no longer COMMITTED. This
 * is checked under the lock that garbage collection takes. */
MUST_CHECK status_t store_job_retry(struct store *s, int64_t epoch, const struct store_job_move *move,
                                    bool *ret_origin_gone, struct err *e);

/* Stores why a QUEUED job waits, as its reason and an event "waiting". Changes nothing if the job is not QUEUED. */
MUST_CHECK status_t store_job_waiting(struct store *s, int64_t epoch, const char *request_id, int64_t job, int attempt,
                                      const char *reason, struct err *e);

/* A job that has not ended, as a new leader loads it: with the placement of its attempt if that has not ended. */
struct store_live_job {
    struct store_job job; /* with its spec if attempt_open */
    bool attempt_open;    /* the row of its attempt is not ENDED */
    int ranks;            /* of its current or last attempt; 0 before the first */
    int64_t from_step;
    int64_t from_checkpoint;      /* 0 = from the start */
    const char *resume_directory; /* of from_checkpoint; "": none */
    bool forked;                  /* from_checkpoint is another job's */
    const char *init_directory;   /* of the checkpoint whose weights the job begins with; "": none */
    bool final_committed;         /* the attempt's final checkpoint is COMMITTED */
    int64_t committed_step;       /* of the attempt's newest COMMITTED checkpoint; -1: none, or not attempt_open */
    const char *const *executors; /* [ranks]; NULL unless attempt_open */
    const int *pids;              /* [ranks] 0 = not started */
};
/* The next `limit` live jobs by id, after `after` (0: from the first). Takes up to STORE_RECOVERY_TIMEOUT_MS. */
MUST_CHECK status_t store_job_live(struct store *s, struct store_memory *m, int64_t after, int limit,
                                   struct store_live_job **ret, size_t *ret_n, struct err *e);

/* What /metrics reports of a job that has not ended. */
struct store_job_brief {
    int64_t id;
    const char *name, *queue;
    enum store_job_state state;
    int restarts;
    int64_t steps; /* 0: not known */
};
/* At most `limit` jobs that have not ended: first those that are not QUEUED, then by id. */
MUST_CHECK status_t store_job_briefs(struct store *s, struct store_memory *m, int limit, struct store_job_brief **ret,
                                     size_t *ret_n, struct err *e);

/* The number of jobs in each state, for /metrics: counts[state], 12 entries. */
MUST_CHECK status_t store_job_counts(struct store *s, int64_t counts[12], struct err *e);

#endif
