/* The scheduler: a pure core, (state, event, now) -> (state, actions). It reads no clock, does no I/O and starts no
 * thread, so that a simulation can drive it through any history.
 *
 *     scheduler_step(s, &event, now_ms, &actions, e);   // state changed in memory, or refused: told again
 *     for each of actions: do it, in this order         // store first, then send: the caller's duty
 *     scheduler_actions_clear(&actions);
 *
 * It owns the live jobs, their current attempt and the executors. A job that has ended is forgotten. Executors and jobs
 * are named as the rest of the service names them: an id string, a number.
 *
 * Rules it keeps (each is checked by the simulation after every step): a slot has one rank; a job has one attempt that
 * may run; every change of a job's state is an edge of job_state.h; attempt numbers grow; a host that may still run
 * something of an old attempt gets nothing.
 *
 * Times are milliseconds on one monotonic clock. Memory: proportional to live jobs, ranks and executors. Whatever may
 * follow from an event has its room before anything changes, so that an event is refused as a whole: on
 * RESOURCE_EXHAUSTED state and actions are as they were, and the caller tells it again. A job for which there are slots
 * but no memory keeps its place in the queue, and starts after one of the next events. Not thread-safe: one thread owns
 * a scheduler. */
#ifndef SERVICE_SCHEDULER_SCHEDULER_H
#define SERVICE_SCHEDULER_SCHEDULER_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/scheduler/failure.h"
#include "service/scheduler/job_state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How often EV_TICK should come. Ticks that come later extend every lease by their lateness. */
#define SCHEDULER_TICK_MS 100
/* A gang that has not joined by then is ended and tried again: a data file or a checkpoint of tens of GB loads within.
 */
#define SCHEDULER_START_TIMEOUT_MS 600000
/* From a polite stop to kill. */
#define SCHEDULER_STOP_GRACE_MS 5000
/* The same of a stop that is to lose nothing: a step ends and a checkpoint of tens of GB is written within, as it loads
 * within the time for a start. A rank that hangs meanwhile is killed by its agent long before. */
#define SCHEDULER_CHECKPOINT_GRACE_MS 600000
#define SCHEDULER_EXECUTOR_ID_BYTES   64

/* What a slot is. */
enum scheduler_slot { SCHEDULER_SLOT_CPU, SCHEDULER_SLOT_CUDA, SCHEDULER_SLOT_KINDS };

/* What an executor is for a job that waits. */
enum scheduler_host {
    SCHEDULER_HOST_TAKES,   /* it has free slots for it */
    SCHEDULER_HOST_FULL,    /* its slots are in use */
    SCHEDULER_HOST_HELD,    /* something of an old attempt may still run there */
    SCHEDULER_HOST_LONE,    /* its devices take jobs of one rank only */
    SCHEDULER_HOST_DRAINED, /* a person has asked that it gets no more ranks */
    SCHEDULER_HOST_WITHOUT, /* it has no slots of this kind */
    SCHEDULER_HOST_AWAY,    /* it is not attached */
    SCHEDULER_HOST_VERDICTS,
};

/* A job as its row says. */
struct scheduler_job_row {
    int64_t job;
    enum job_state state;
    int priority; /* higher first */
    int world_size;
    enum scheduler_slot slot;
    int max_restarts;
    int restarts; /* those that count, so far */
    int attempt;  /* the current or last one; 0 before the first */
    /* Of the current attempt, when it has not ended: one executor id per rank. NULL otherwise. */
    const char *const *placement; /* [world_size] */
    const bool *started;          /* [world_size] the row has a pid; NULL = none */
    bool final_committed;         /* the current or last attempt's final checkpoint is COMMITTED */
    int64_t committed_step;       /* of the attempt's newest COMMITTED checkpoint; -1 = none */
};

/* Whether an executor gets no more ranks. */
struct scheduler_drain {
    bool drained;
    bool now;           /* nor keeps those that it has */
    const char *reason; /* of whoever asked; NULL or "" = none given */
};

/* What an executor says of one attempt when it attaches. */
struct scheduler_rank_report {
    int rank;
    bool offered; /* an address came with it */
    bool joined;
};
struct scheduler_part_report {
    int64_t job;
    int attempt;
    bool ended;
    int n_ranks; /* running */
    const struct scheduler_rank_report *ranks;
    int n_ends; /* with ended */
    const struct rank_end *ends;
};

enum scheduler_event_kind {
    EV_TICK,              /* leases and deadlines are judged; everything that arrived must have been given before */
    EV_JOB_SUBMITTED,     /* row: QUEUED */
    EV_JOB_CANCEL,        /* job, token: answered by one ACT_REPLY */
    EV_JOB_PAUSE,         /* the same */
    EV_JOB_RESUME,        /* the same */
    EV_JOB_RETRY,         /* row: FAILED; token */
    EV_EXECUTOR_ATTACHED, /* executor, attach */
    EV_EXECUTOR_HEARD,    /* executor, heard_ms; never refused, and nothing follows from it */
    EV_EXECUTOR_DEVICES,  /* executor; attach.incarnation: attach.slots[SCHEDULER_SLOT_CUDA] and attach.quarantined are
                           * others now
                           */
    EV_EXECUTOR_DRAIN,    /* executor, drain, token: as its row says by now; again when that has changed, or ends */
    EV_RANK_STARTED,      /* job, attempt, rank */
    EV_RANK_OFFERED,
    EV_RANK_JOINED,
    EV_RANK_ENDED,  /* executor, job, attempt, ends: at once; EV_PART_ENDED tells it again */
    EV_PART_ENDED,  /* executor, job, attempt, ends: no process of the attempt is left on that host */
    EV_RANK_STORED, /* job, attempt, rank, sequence: all records up to it are in the database */
    EV_COMMITTED,   /* job, attempt, step, final: the checkpoint is COMMITTED in the database */
};

struct scheduler_event {
    enum scheduler_event_kind kind;
    int64_t job;
    int attempt, rank;
    int64_t sequence, step, heard_ms;
    bool final;
    uint64_t token; /* the caller's, comes back in ACT_REPLY */
    const char *executor;
    const struct scheduler_job_row *row;
    struct {
        int64_t incarnation;
        int slots[SCHEDULER_SLOT_KINDS]; /* devices that take work; cpu: what the host offers */
        int quarantined;                 /* devices that do not */
        bool lone;                       /* ranks on its devices cannot talk: they take jobs of one rank only */
        int n_parts;
        const struct scheduler_part_report *parts;
    } attach;
    struct scheduler_drain drain;
    int n_ends;
    const struct rank_end *ends;
};

enum scheduler_action_kind {
    /* To the database, each one transaction with its event row. */
    ACT_ATTEMPT_CREATE,     /* job, attempt, from -> STARTING, placement */
    ACT_JOB_STATE,          /* job, attempt, from, to, cause, restarts, text = reason */
    ACT_ATTEMPT_END,        /* job, attempt, restarts, text: the attempt's row gets its end */
    ACT_CHECKPOINT_CORRUPT, /* job, attempt, text: the checkpoint that the attempt started from */
    ACT_NOTE,               /* job, attempt, note, text: an event row without a change of state */
    ACT_WAITING,            /* job, attempt, text: why it stays QUEUED, for its reason and an event */
    ACT_EXECUTOR_LOST,      /* executor, text */
    /* To executors. One that is not attached loses the message: its next attach reconciles. */
    ACT_SEND_START,       /* executor, job, attempt: its ranks of the placement */
    ACT_SEND_RENDEZVOUS,  /* executor, job, attempt: every rank has offered its address */
    ACT_SEND_STOP,        /* executor, job, attempt, grace_ms, text */
    ACT_SEND_ACKNOWLEDGE, /* executor, job, attempt */
    ACT_SEND_COMMITTED,   /* executor, job, attempt, step */
    /* To the caller. */
    ACT_AWAIT_STORED, /* job, attempt, rank, sequence: tell EV_RANK_STORED when it is so */
    ACT_REPLY,        /* token, status, reason, text */
    ACT_FORGET,       /* job: it has ended; nothing more comes for it */
};

struct scheduler_action {
    enum scheduler_action_kind kind;
    int64_t job;
    int attempt, rank;
    int64_t sequence, step;
    enum job_state from, to;
    enum job_cause cause;
    int restarts;
    int grace_ms;
    uint64_t token;
    status_t status;
    const char *note;   /* static */
    const char *reason; /* static; of a refusal, for programs: JOB_NOT_FAILED */
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    char text[400];
    int world_size;                                 /* with placement */
    char (*placement)[SCHEDULER_EXECUTOR_ID_BYTES]; /* [world_size], rank order; owned by the list */
};

struct scheduler_actions {
    struct scheduler_action *items;
    size_t n, cap;
};
void scheduler_actions_clear(struct scheduler_actions *a); /* keeps the room */
void scheduler_actions_done(struct scheduler_actions *a);

struct scheduler;
struct scheduler *scheduler_new(int64_t now_ms); /* NULL: no memory */
struct scheduler *scheduler_free(struct scheduler *s);
CLEANUP_DEFINE(struct scheduler *, scheduler_free)

/* At start, once per job that has not ended. Executors named by a placement get one fresh lease from now: until they
 * have attached, or it is over, nothing is decided about their ranks. RESOURCE_EXHAUSTED, of scheduler_load_executor
 * too: the scheduler may have a part of it, and is of no use but to be freed. */
MUST_CHECK status_t scheduler_load(struct scheduler *s, const struct scheduler_job_row *row, int64_t now_ms,
                                   struct err *e);

/* At start, before the jobs: for an executor that was attached to the last leader (it is lost unless it attaches within
 * a lease), and for one that is drained (NULL: it is not). */
MUST_CHECK status_t scheduler_load_executor(struct scheduler *s, const char *id, bool attached,
                                            const struct scheduler_drain *drain, int64_t now_ms, struct err *e);

/* Adds what is to be done to ret. RESOURCE_EXHAUSTED: nothing has happened. */
MUST_CHECK status_t scheduler_step(struct scheduler *s, const struct scheduler_event *event, int64_t now_ms,
                                   struct scheduler_actions *ret, struct err *e);

/* An ACT_ATTEMPT_CREATE that the store has refused by making the job FAILED: forgets it, and its slots are free. Orders
 * for its hosts that follow in the same list are the caller's to drop. */
void scheduler_refused(struct scheduler *s, int64_t id, int attempt);

/* What /metrics shows. */
struct scheduler_counts {
    int jobs, queued, executors, attached;
    int slots[SCHEDULER_SLOT_KINDS], used[SCHEDULER_SLOT_KINDS];
    int drained[SCHEDULER_SLOT_KINDS]; /* of slots */
};
struct scheduler_counts scheduler_counts(const struct scheduler *s);

/* The priority of the job that waits for slots of this kind and may not be overtaken; INT_MIN when there is none. */
int scheduler_waiting_priority(const struct scheduler *s, enum scheduler_slot kind);

/* Walks for tests: the state of every live job; the load of every executor. */
struct scheduler_job_view {
    int64_t job;
    enum job_state state;
    int attempt, restarts, world_size;
    bool attempt_open; /* ranks of the attempt may be running */
    enum scheduler_slot slot;
};
struct scheduler_executor_view {
    const char *id;
    bool attached, lost, drained;
    int slots[SCHEDULER_SLOT_KINDS], used[SCHEDULER_SLOT_KINDS];
    int held; /* old attempts that may still run there */
};
void scheduler_each_job(const struct scheduler *s, void (*fn)(void *ctx, const struct scheduler_job_view *), void *ctx);
void scheduler_each_executor(const struct scheduler *s, void (*fn)(void *ctx, const struct scheduler_executor_view *),
                             void *ctx);

#endif
