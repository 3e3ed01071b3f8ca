/* The scheduler: a pure function (state, event, now) -> (state, actions). It reads no clock, does no I/O and starts no
 * thread, so that a simulation can drive it through any history.
 *
 *     scheduler_step(s, &event, now_ms, &actions);      // changes the state in memory
 *     for each of actions: run it, in this order        // the caller stores first, then sends
 *     scheduler_actions_clear(&actions);
 *
 * It owns the live jobs, their current attempts and the executors. It forgets a job that has ended.
 *
 * Invariants, checked by the simulation after every step: a slot has one rank; at most one attempt of a job may run;
 * every change of a job's state is an edge of job_state.h; attempt numbers grow; a host that may still run an old
 * attempt gets no ranks.
 *
 * Times are milliseconds on one monotonic clock. Memory is small, and proportional to live jobs, ranks and executors
 * (base/alloc.h). Not thread-safe: one thread owns a scheduler. */
#ifndef SERVICE_SCHEDULER_SCHEDULER_H
#define SERVICE_SCHEDULER_SCHEDULER_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/scheduler/failure.h"
#include "service/scheduler/feature.h"
#include "service/scheduler/job_state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The interval of EV_TICK. A late tick extends every lease by its delay. */
#define SCHEDULER_TICK_MS 100
/* A gang that has not joined by then is stopped and restarted. Long enough to load tens of GB of data or checkpoint. */
#define SCHEDULER_START_TIMEOUT_MS 600000
/* The same if hosts copy data first: the agents watch that copying does not stand still. */
#define SCHEDULER_START_DATA_TIMEOUT_MS 86400000
/* A program's rank repeats that it is silent within this time, or it counts as not silent. */
#define SCHEDULER_SILENCE_MS 12000
/* From a stop order to kill. */
#define SCHEDULER_STOP_GRACE_MS 5000
/* The same for a stop after a checkpoint: long enough to end a step and write tens of GB. The agent kills a rank that
 * hangs long before. */
#define SCHEDULER_CHECKPOINT_GRACE_MS 600000
#define SCHEDULER_EXECUTOR_ID_BYTES   64
#define SCHEDULER_QUEUE_BYTES         68
#define SCHEDULER_USER_BYTES          132
/* Slots that a queue used this long ago count half as much for its share as those that it uses now. */
#define SCHEDULER_HALF_TIME_MS 86400000
/* While several queues wait, their order is looked at again at least this often, because shares change with time. */
#define SCHEDULER_ORDER_MS 10000
/* For this long a job gets no ranks on a host on which the job failed. For the same time a host on which any job failed
 * gets ranks only if no other host has free slots. */
#define SCHEDULER_AVOID_MS 600000
/* The hosts that are remembered per job, with what they lacked. A job that avoids this many has no other host. */
#define SCHEDULER_MAX_AVOIDED 8
/* Job A avoids host H. Jobs behind A in the queue may normally use H, but not if H has failed this many jobs
 * in a row. */
#define SCHEDULER_FAULTY_JOBS 3
/* How long a job waits for a checkpoint whose files cannot be read, before the checkpoint becomes MISSING and an older
 * one is used: the default of trainyard-controller --checkpoint-wait. If a second host cannot read it either, the job
 * waits for a tenth of that: a shared folder that is unreachable for a minute is unreachable for all hosts. */
#define SCHEDULER_CHECKPOINT_WAIT_MS 600000
#define SCHEDULER_CONFIRMED_DIVISOR  10
/* An elastic job grows when slots that no waiting job can use have been free for this long without a change of their
 * number, and its attempt has run for this long: the default of trainyard-controller --elastic-settle. If the number of
 * free slots changes all the time, it grows by the lowest number within SCHEDULER_SETTLE_MAX times as long. */
#define SCHEDULER_ELASTIC_SETTLE_MS 30000
#define SCHEDULER_SETTLE_MAX        4
/* A growth that brought no rank doubles the time that the next attempt must have run, up to this time. */
#define SCHEDULER_GROWTH_MAX_MS 3600000
/* Without `stop: step` a job grows within this time after a checkpoint, so that little work is repeated. */
#define SCHEDULER_GROWTH_AFTER_CHECKPOINT_MS 5000

/* One placing starts at most this many jobs, and begins no further one after this many ranks. The next event or tick
 * continues, so that no event takes long when many slots become free at once. */
#define SCHEDULER_STARTS_PER_PLACING 64
#define SCHEDULER_RANKS_PER_PLACING  512
/* One tick loses at most this many executors, and lets at most this many jobs restart, for the same reason. */
#define SCHEDULER_LOST_PER_TICK     64
#define SCHEDULER_RESTARTS_PER_TICK 256

/* The kinds of slots. */
enum scheduler_slot { SCHEDULER_SLOT_CPU, SCHEDULER_SLOT_CUDA, SCHEDULER_SLOT_KINDS };

/* Whether an executor takes ranks of a waiting job. In trainyard.v1.ExecutorVerdict, FENCED is HELD, SINGLE_RANK is
 * LONE and DETACHED is AWAY. */
enum scheduler_host {
    SCHEDULER_HOST_TAKES,       /* yes: it has free slots */
    SCHEDULER_HOST_FULL,        /* its slots are in use */
    SCHEDULER_HOST_FENCED,      /* it is fenced: an old attempt may still run there */
    SCHEDULER_HOST_SINGLE_RANK, /* its devices take jobs of one rank only */
    SCHEDULER_HOST_DRAINED,     /* a person has drained it */
    SCHEDULER_HOST_WITHOUT,     /* it has no slots of this kind */
    SCHEDULER_HOST_DETACHED,    /* it is not attached, or leaves: enum scheduler_detachment */
    SCHEDULER_HOST_AVOIDED,     /* it has failed the job recently */
    SCHEDULER_HOST_LACKS,       /* its agent lacks a feature that the job needs: enum scheduler_feature */
    SCHEDULER_HOST_STATES,
};

/* Why an executor that is not lost takes no ranks. */
enum scheduler_detachment {
    SCHEDULER_NOT_DETACHED,
    SCHEDULER_DETACHED_SINCE_START,  /* it has not attached since this scheduler was loaded */
    SCHEDULER_DETACHED_STREAM_ENDED, /* its stream has ended */
    SCHEDULER_DETACHED_LEAVING,      /* its agent is stopping */
};

/* A host that has failed a job. */
struct scheduler_avoided {
    const char *executor;
    enum rank_end_cause cause;
    int64_t left_ms; /* for this long the job gets no ranks there */
    const char *why; /* what it lacked */
};

/* A queue's row. -1: no limit. */
struct scheduler_queue {
    const char *name, *cohort;            /* cohort: "" or NULL = none */
    int weight;                           /* at least 1 */
    int max_priority;                     /* its jobs have at most this priority; INT_MAX = any */
    int quota[SCHEDULER_SLOT_KINDS];      /* slots that its jobs may use */
    int borrow[SCHEDULER_SLOT_KINDS];     /* and slots of others of the cohort */
    int lend[SCHEDULER_SLOT_KINDS];       /* slots of its quota that others may use */
    int user_slots[SCHEDULER_SLOT_KINDS]; /* slots that the jobs of one user may use */
};

/* A job's row. */
struct scheduler_job_row {
    int64_t job;
    enum job_state state;
    char queue[SCHEDULER_QUEUE_BYTES], user[SCHEDULER_USER_BYTES];
    int priority;       /* higher first */
    int world_size;     /* ranks that the job needs */
    int max_world_size; /* the most ranks that an attempt takes; at most world_size: the same number */
    bool stops_at_step; /* its ranks save when they stop */
    int ranks;          /* of the current or last attempt; 0: world_size if it is open, else unknown */
    enum scheduler_slot slot;
    uint32_t needs; /* the sum of the features that its hosts must have */
    int max_restarts;
    int restarts; /* restarts so far that count against max_restarts */
    int attempt;  /* the current or last one; 0 before the first */
    /* The executor of each rank of the current attempt; NULL if that has ended. */
    const char *const *placement; /* [ranks] */
    const bool *started;          /* [ranks] the row has a pid; NULL = none */
    bool no_final_checkpoint;     /* the job has succeeded when every rank has finished, as a program */
    bool final_committed;         /* the current or last attempt's final checkpoint is COMMITTED */
    int64_t committed_step;       /* of the attempt's newest COMMITTED checkpoint; -1 = none */
    int n_avoided;
    const struct scheduler_avoided *avoided; /* [n_avoided], at most SCHEDULER_MAX_AVOIDED are kept */
    /* How long the checkpoint that it would resume from could not be read; 0 = no attempt has tried. */
    int64_t unreadable_ms;
};

/* Whether an executor gets no more ranks. */
struct scheduler_drain {
    bool drained;
    bool now;           /* its running attempts also end, after a checkpoint */
    const char *reason; /* given by the person; NULL or "" = none */
};

/* What an executor reports about one attempt when it attaches. */
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
    EV_TICK,              /* leases and deadlines expire. Before you pass EV_TICK, pass all events that
                           * arrived earlier */
    EV_JOB_SUBMITTED,     /* row: QUEUED */
    EV_JOB_CANCEL,        /* job, token, reason (NULL or "": by its user); one ACT_REPLY follows */
    EV_JOB_PAUSE,         /* job, token; one ACT_REPLY follows */
    EV_JOB_RESUME,        /* the same */
    EV_JOB_RETRY,         /* row: FAILED; token */
    EV_EXECUTOR_ATTACHED, /* executor, attach */
    EV_EXECUTOR_SEEN,     /* executor, last_seen_ms; renews its lease; no actions follow */
    EV_EXECUTOR_LEAVES,   /* executor, attach.incarnation: its agent is stopping. It gets no more ranks. drain.now: its
                           * jobs are preempted; otherwise the agent ends its ranks. Repeated after each attach */
    EV_EXECUTOR_DETACHED, /* the same: its stream has ended. It gets no more ranks until it attaches again. It keeps its
                           * ranks until its lease expires. One that leaves and has no ranks is lost at once */
    EV_EXECUTOR_DEVICES,  /* executor, attach.incarnation: attach.slots[SCHEDULER_SLOT_CUDA] and attach.quarantined have
                           * changed */
    EV_QUEUE_SET,         /* queue, token: its row was stored or changed */
    EV_QUEUE_DELETED,     /* queue.name, token: it has no row any more */
    EV_EXECUTOR_DRAIN,    /* executor, drain, token: the row's drain mark was set, changed or removed */
    EV_RANK_STARTED,      /* job, attempt, rank */
    EV_RANK_OFFERED,
    EV_RANK_JOINED,
    EV_RANK_ENDED,   /* executor, job, attempt, ends: at once; EV_PART_ENDED repeats it */
    EV_PART_ENDED,   /* executor, job, attempt, ends: no process of the attempt is left on that host */
    EV_PART_REFUSED, /* executor, job, attempt, reason: its ACT_SEND_START could not be sent, and never can */
    EV_RANK_SILENT,  /* job, attempt, rank, step (-1: none), silent_ms (0: no longer), follows: a program's rank */
    EV_RANK_STORED,  /* job, attempt, rank, sequence: all records up to it are in the database */
    EV_COMMITTED,    /* job, attempt, step, final: the checkpoint is COMMITTED in the database */
    EV_PLACE,        /* starts waiting jobs that earlier events with `more` have not started */
};

struct scheduler_event {
    enum scheduler_event_kind kind;
    int64_t job;
    int attempt, rank;
    int64_t sequence, step, last_seen_ms;
    int64_t silent_ms;
    bool final;
    bool more;      /* other events follow at once, and EV_PLACE after them: waiting jobs start then, all together, so
                     * that a walk of the queue for each event is saved */
    bool follows;   /* the rank never reports anything */
    uint64_t token; /* the caller's, returned in ACT_REPLY */
    const char *executor;
    const char *reason; /* one sentence */
    const struct scheduler_job_row *row;
    struct {
        int64_t incarnation;
        int slots[SCHEDULER_SLOT_KINDS]; /* devices that take work; cpu: what the host offers */
        int quarantined;                 /* devices that do not */
        bool single_rank;                /* ranks on its devices cannot communicate: it takes only jobs of one rank */
        uint32_t features;               /* the sum of those that its agent has */
        int n_parts;
        const struct scheduler_part_report *parts;
    } attach;
    struct scheduler_drain drain;
    struct scheduler_queue queue;
    int n_ends;
    const struct rank_end *ends;
};

enum scheduler_action_kind {
    /* To the database, each one transaction with its event row. */
    ACT_ATTEMPT_CREATE,     /* job, attempt, from -> STARTING, placement, needs */
    ACT_JOB_STATE,          /* job, attempt, from, to, cause, restarts, text = reason; from CANCELLING to CANCELLED
                             * the text is empty, and the reason of the cancel stays */
    ACT_ATTEMPT_END,        /* job, attempt, restarts, text: the attempt's row gets its end */
    ACT_CHECKPOINT_CORRUPT, /* job, attempt, text: the checkpoint that the attempt started from */
    ACT_CHECKPOINT_MISSING, /* the same */
    ACT_HOST_FAULT,         /* job, attempt, executor, blamed, text: what that host lacked for it */
    ACT_NOTE,               /* job, attempt, note, text: an event row without a change of state */
    ACT_WAITING,            /* job, attempt, text: why it stays QUEUED, for its reason and an event */
    ACT_EXECUTOR_LOST,      /* executor, text */
    /* To executors. If one is not attached, the message is lost, and its next attach reconciles. */
    ACT_SEND_START,       /* executor, job, attempt: its ranks of the placement */
    ACT_SEND_RENDEZVOUS,  /* executor, job, attempt: every rank has offered its address */
    ACT_SEND_STOP,        /* executor, job, attempt, grace_ms, text */
    ACT_SEND_ACKNOWLEDGE, /* executor, job, attempt */
    ACT_SEND_COMMITTED,   /* executor, job, attempt, step */
    /* To the caller. */
    ACT_AWAIT_STORED, /* job, attempt, rank, sequence: pass EV_RANK_STORED once they are stored */
    ACT_REPLY,        /* token, status, reason, text */
    ACT_RESTART,      /* job, attempt, blamed: another attempt follows one that failed; for /metrics */
    ACT_FORGET,       /* job: it has ended; no further actions follow */
};

struct scheduler_action {
    enum scheduler_action_kind kind;
    int64_t job;
    int attempt, rank;
    int64_t sequence, step;
    enum job_state from, to;
    enum job_cause cause;
    enum rank_end_cause blamed;
    int restarts;
    int grace_ms;
    bool collect_stacks; /* of ACT_SEND_STOP: the ranks log their stacks before they end */
    uint64_t token;
    status_t status;
    const char *note;   /* static */
    const char *reason; /* static; of a refusal, for programs: JOB_NOT_FAILED */
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    char text[400];
    uint32_t needs;                                 /* the features that the job needs */
    int world_size;                                 /* with placement */
    char (*placement)[SCHEDULER_EXECUTOR_ID_BYTES]; /* [world_size], rank order; owned by the list */
};

struct scheduler_actions {
    struct scheduler_action *items;
    size_t n, cap;
};
void scheduler_actions_clear(struct scheduler_actions *a); /* keeps the memory */
void scheduler_actions_done(struct scheduler_actions *a);

struct scheduler;
struct scheduler *scheduler_new(int64_t now_ms);
struct scheduler *scheduler_free(struct scheduler *s);
CLEANUP_DEFINE(struct scheduler *, scheduler_free)

/* Sets the wait that replaces SCHEDULER_CHECKPOINT_WAIT_MS. */
void scheduler_set_checkpoint_wait(struct scheduler *s, int64_t wait_ms);

/* Sets the time that replaces SCHEDULER_ELASTIC_SETTLE_MS. */
void scheduler_set_elastic_settle(struct scheduler *s, int64_t settle_ms);

/* At the start, once per job that has not ended. Executors named by a placement get one full lease from now; nothing is
 * decided about their ranks until they attach or the lease expires. */
void scheduler_load(struct scheduler *s, const struct scheduler_job_row *row, int64_t now_ms);

/* At the start, before the jobs, for each row. average: its slots in the past, as scheduler_each_queue reported them
 * age_ms ago. */
void scheduler_load_queue(struct scheduler *s, const struct scheduler_queue *row,
                          const double average[SCHEDULER_SLOT_KINDS], int64_t age_ms, int64_t now_ms);

/* Sets the time that replaces SCHEDULER_HALF_TIME_MS. */
void scheduler_set_half_time(struct scheduler *s, int64_t half_time_ms);

/* At the start, before the jobs: for an executor that was attached to the last leader (it is lost unless it attaches
 * within a lease), and for one that is drained (NULL: it is not). */
void scheduler_load_executor(struct scheduler *s, const char *id, bool attached, const struct scheduler_drain *drain,
                             int64_t now_ms);

/* Appends the actions that follow to ret. */
void scheduler_step(struct scheduler *s, const struct scheduler_event *event, int64_t now_ms,
                    struct scheduler_actions *ret);

/* Whether EV_PLACE would do something. */
bool scheduler_needs_placing(const struct scheduler *s);

/* Call this when the store made the job FAILED instead of creating the attempt. The function forgets the job and frees
 * its slots. The caller drops the orders for the job's hosts that follow the ACT_ATTEMPT_CREATE in the same list. */
void scheduler_refused(struct scheduler *s, int64_t id, int attempt);

/* Whether the attempt is the job's current one, whose ranks may run, and has placed the rank on this executor.
 * ret_current (may be NULL): whether it is the current one and has such a rank, wherever that is placed. */
bool scheduler_has_rank(const struct scheduler *s, const char *executor, int64_t job, int attempt, int rank,
                        bool *ret_current);

/* For /metrics. */
struct scheduler_counts {
    int jobs, queued, queues, executors, attached;
    int slots[SCHEDULER_SLOT_KINDS], used[SCHEDULER_SLOT_KINDS];
    int drained[SCHEDULER_SLOT_KINDS]; /* of slots */
};
struct scheduler_counts scheduler_counts(const struct scheduler *s);

/* What placings have done since the start: they must not walk the whole queue or all hosts. */
struct scheduler_effort {
    int64_t placings, jobs; /* waiting jobs looked at */
};
struct scheduler_effort scheduler_effort(const struct scheduler *s);

/* Slots of this kind that a single-rank job, or a gang, could ever use on executors that are attached or whose stream
 * has ended, including drained ones, because a person may undrain them. Cheap. */
int scheduler_offered(const struct scheduler *s, enum scheduler_slot kind, bool gang);
/* Whether this many ranks could ever start there, exactly. The answer is yes while a new leader still waits for
 * executors to attach. If not, `why` names what they need and what exists. */
struct scheduler_fit {
    bool fits;
    char why[320];
};
void scheduler_fit(const struct scheduler *s, enum scheduler_slot kind, int world_size, struct scheduler_fit *ret);

/* The priority of the job that blocks the queue for slots of this kind; INT_MIN if none does. */
int scheduler_waiting_priority(const struct scheduler *s, enum scheduler_slot kind);

/* Visits every queue. */
struct scheduler_queue_view {
    const char *name;
    bool has_row;
    int jobs;
    int used[SCHEDULER_SLOT_KINDS];
    double average[SCHEDULER_SLOT_KINDS]; /* of `used` in the past, as the share counts it */
};
void scheduler_each_queue(struct scheduler *s, int64_t now_ms,
                          void (*fn)(void *ctx, const struct scheduler_queue_view *), void *ctx);

/* For tests: visits every live job; every executor. */
struct scheduler_job_view {
    int64_t job;
    enum job_state state;
    int attempt, restarts, world_size, max_world_size;
    int ranks;         /* of the current or last attempt; 0 before the first, or unknown */
    bool attempt_open; /* ranks of the attempt may be running */
    enum scheduler_slot slot;
};
struct scheduler_executor_view {
    const char *id;
    bool attached, leaving, lost, drained;
    int slots[SCHEDULER_SLOT_KINDS], used[SCHEDULER_SLOT_KINDS];
    int fenced; /* old attempts that may still run there */
};
void scheduler_each_job(const struct scheduler *s, void (*fn)(void *ctx, const struct scheduler_job_view *), void *ctx);
void scheduler_each_executor(const struct scheduler *s, void (*fn)(void *ctx, const struct scheduler_executor_view *),
                             void *ctx);

#endif
