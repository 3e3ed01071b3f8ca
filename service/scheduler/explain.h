/* Why one job waits: what the scheduler itself would answer, by the predicates that it places by (executor_judge,
 * queue_room, queue_holds_up), so that no second opinion can drift from the first.
 *
 * A pure read that takes time in proportion to the jobs that wait, the ranks that run and the executors: 3 ms for the
 * last of 100,000 jobs behind 8,000 ranks on 1,000 executors. */
#ifndef SERVICE_SCHEDULER_EXPLAIN_H
#define SERVICE_SCHEDULER_EXPLAIN_H

#include "service/scheduler/scheduler.h"

/* An answer is bounded, whatever runs: so many reasons, so many of each list; the rest is counted. */
#define SCHEDULER_REASONS 10
#define SCHEDULER_LISTED  16

/* The numbers are those of trainyard.v1.WaitReason.Kind. */
enum scheduler_wait {
    SCHEDULER_WAIT_NOTHING = 1,      /* the next placing takes it */
    SCHEDULER_WAIT_BACKOFF = 2,      /* RESTARTING: its next attempt has a time */
    SCHEDULER_WAIT_ENDING = 3,       /* something of its last attempt is left */
    SCHEDULER_WAIT_GATHERING = 4,    /* STARTING: not all ranks have joined */
    SCHEDULER_WAIT_NO_EXECUTOR = 5,  /* none is attached */
    SCHEDULER_WAIT_NO_SLOTS = 6,     /* no attached one has slots of its kind that it may have */
    SCHEDULER_WAIT_TOO_WIDE = 7,     /* all of them together have too few, used or not */
    SCHEDULER_WAIT_AWAY = 8,         /* executors that the last leader knew have not come back */
    SCHEDULER_WAIT_QUARANTINED = 9,  /* devices are, which would be slots */
    SCHEDULER_WAIT_LONE = 10,        /* slots are on executors that take no gangs */
    SCHEDULER_WAIT_ORDER = 11,       /* others are before it */
    SCHEDULER_WAIT_BUSY = 12,        /* too few slots are free */
    SCHEDULER_WAIT_HELD = 13,        /* free slots where an old attempt may still run */
    SCHEDULER_WAIT_ORIGIN_GONE = 14, /* not the scheduler's to know: the store's */
    SCHEDULER_WAIT_DRAINED = 15,     /* slots are on executors that get no more ranks */
    SCHEDULER_WAIT_PAUSED = 16,      /* its user has paused it */
};

struct scheduler_reason {
    enum scheduler_wait kind;
    char message[400]; /* what holds it up, one sentence without a full stop, as all reasons are */
    char remedy[400];  /* what would free it */
};

struct scheduler_explanation {
    bool live; /* false: it has ended, or nobody has told of it yet; nothing else is set */
    enum job_state state;
    enum scheduler_slot slot;
    int attempt, world_size;
    char summary[400]; /* one sentence */
    /* The one that must go first is first. None for a job that waits for nothing: it runs, or is being cancelled. */
    struct scheduler_reason reasons[SCHEDULER_REASONS];
    int n_reasons;
    int64_t next_attempt_ms; /* with SCHEDULER_WAIT_BACKOFF: when, on the scheduler's clock */

    /* Of a job that waits for slots; else 0. */
    int position;    /* 1 + the jobs whose turn comes first; wider ones than all executors hold nobody up */
    int waiting;     /* jobs that wait for slots of this kind, this one included */
    int slots, free; /* that it could have, of all attached executors; now */
    struct scheduler_holder {
        int64_t job;
        int attempt, slots;
    } holders[SCHEDULER_LISTED]; /* who has slots that it could have, most slots first */
    int n_holders, more_holders;
    struct scheduler_host_view {
        char id[SCHEDULER_EXECUTOR_ID_BYTES];
        enum scheduler_host verdict;
        int slots, free; /* of its kind; free: that it could have now */
        int quarantined;
        int64_t held_job; /* with SCHEDULER_HOST_HELD */
        int held_attempt;
        char drain_reason[160]; /* with SCHEDULER_HOST_DRAINED; "" = none was given */
    } hosts[SCHEDULER_LISTED];  /* as enum scheduler_host is ordered, then most free slots first */
    int n_hosts, more_hosts;
};

void scheduler_explain(const struct scheduler *s, int64_t job, int64_t now_ms, struct scheduler_explanation *ret);

#endif
