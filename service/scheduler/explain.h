/* Explains why one job waits. Uses the functions that decide the placement (executor_availability, queue_capacity,
 * queue_blocks), so that the explanation always agrees with the scheduler.
 *
 * Changes nothing. The time is proportional to the waiting jobs, the running ranks and the executors: bench/scheduler.c
 * measures 10 ms with 100,000 waiting jobs and 10,000 executors. */
#ifndef SERVICE_SCHEDULER_EXPLAIN_H
#define SERVICE_SCHEDULER_EXPLAIN_H

#include "service/scheduler/scheduler.h"

/* The size of an explanation is bounded: the number of reasons, and of entries in each list. Further entries are
 * counted. */
#define SCHEDULER_REASONS 12
#define SCHEDULER_LISTED  16

/* The numbers are those of trainyard.v1.WaitReason.Kind. */
enum scheduler_wait {
    SCHEDULER_WAIT_NOTHING = 1,      /* the next placing starts it */
    SCHEDULER_WAIT_BACKOFF = 2,      /* RESTARTING: its next attempt has a time */
    SCHEDULER_WAIT_ENDING = 3,       /* its last attempt has not ended everywhere */
    SCHEDULER_WAIT_GATHERING = 4,    /* STARTING: not all ranks have joined */
    SCHEDULER_WAIT_NO_EXECUTOR = 5,  /* no executor is attached */
    SCHEDULER_WAIT_NO_SLOTS = 6,     /* no attached executor has slots of its kind that it may use */
    SCHEDULER_WAIT_TOO_WIDE = 7,     /* all attached executors together have too few slots, free or not */
    SCHEDULER_WAIT_DETACHED = 8,     /* executors are not attached, but may attach again */
    SCHEDULER_WAIT_QUARANTINED = 9,  /* some devices are quarantined and give no slots */
    SCHEDULER_WAIT_SINGLE_RANK = 10, /* slots are on executors that take no gangs */
    SCHEDULER_WAIT_ORDER = 11,       /* other jobs are before it */
    SCHEDULER_WAIT_BUSY = 12,        /* too few slots are free */
    SCHEDULER_WAIT_FENCED = 13,      /* free slots are on hosts where an old attempt may still run */
    SCHEDULER_WAIT_ORIGIN_GONE = 14, /* only the store knows this, not the scheduler */
    SCHEDULER_WAIT_DRAINED = 15,     /* slots are on executors that get no more ranks */
    SCHEDULER_WAIT_PAUSED = 16,      /* its user has paused it */
    SCHEDULER_WAIT_AVOIDED = 17,     /* slots are on executors that have failed it */
    SCHEDULER_WAIT_CHECKPOINT = 18,  /* no executor can read the checkpoint that it resumes from */
    SCHEDULER_WAIT_LACKING = 19,     /* slots are on executors whose agent lacks a feature that it needs */
    SCHEDULER_WAIT_QUOTA = 20,       /* its queue may use no more slots, or its cohort has no more left */
    SCHEDULER_WAIT_USER = 21,        /* its user may use no more slots in the queue */
};

struct scheduler_reason {
    enum scheduler_wait kind;
    char message[640]; /* why the job waits: one sentence without a full stop */
    char remedy[400];  /* what a person can do */
};

struct scheduler_explanation {
    bool live; /* false: the job has ended, or the scheduler does not know it yet; nothing else is set */
    enum job_state state;
    enum scheduler_slot slot;
    int attempt, world_size;
    char summary[400]; /* one sentence */
    /* In the order in which a person would act. Empty for a job that does not wait: it runs, or is being cancelled. */
    struct scheduler_reason reasons[SCHEDULER_REASONS];
    int n_reasons;
    int64_t next_attempt_ms; /* with SCHEDULER_WAIT_BACKOFF: the time on the scheduler's clock */

    /* Set for a job that waits for slots; else 0. */
    int position;    /* 1 + the jobs before it that block it; a job wider than all executors blocks none */
    int waiting;     /* jobs that wait for slots of this kind, including this one */
    int slots, free; /* slots that it may use on attached executors: all; free now */
    struct scheduler_holder {
        int64_t job;
        int attempt, slots;
    } holders[SCHEDULER_LISTED]; /* jobs that use slots that it may use, most slots first */
    int n_holders, more_holders;
    struct scheduler_host_view {
        char id[SCHEDULER_EXECUTOR_ID_BYTES];
        enum scheduler_host availability;
        int slots, free; /* slots of its kind; those that it could use now */
        int quarantined;
        int64_t fenced_job; /* with SCHEDULER_HOST_FENCED */
        int fenced_attempt;
        enum scheduler_detachment detachment; /* with SCHEDULER_HOST_DETACHED */
        /* With SCHEDULER_HOST_AVOIDED: what it lacked; with _LACKS: the feature; with _DRAINED: "" = no reason was
         * given. */
        char reason[240];
    } hosts[SCHEDULER_LISTED]; /* in the order of enum scheduler_host, then most free slots first */
    int n_hosts, more_hosts;
};

void scheduler_explain(const struct scheduler *s, int64_t job, int64_t now_ms, struct scheduler_explanation *ret);

#endif
