/* What a sweep does next, as a pure function of its counts and of the trials that have not ended. The controller reads
 * the rows, calls sweep_decide, carries the decisions out and reads again, so that a new leader continues from the rows
 * alone. Pure and thread-safe. */
#ifndef SERVICE_SCHEDULER_SWEEP_H
#define SERVICE_SCHEDULER_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

enum sweep_trial_state {
    SWEEP_TRIAL_RUNS,       /* its job has not ended, or waits */
    SWEEP_TRIAL_STOPPED,    /* the same, but a rung has stopped the trial (sweep_rung.h) */
    SWEEP_TRIAL_CANCELLING, /* its job is being cancelled */
    SWEEP_TRIAL_SUCCEEDED,
    SWEEP_TRIAL_FAILED,
    SWEEP_TRIAL_CANCELLED, /* or its job was deleted */
};

struct sweep_state {
    bool cancelling;                    /* no trial starts any more, and the others are cancelled */
    bool stopped;                       /* because of struct sweep_decision.stop, and not by a user */
    int trials;                         /* in all */
    int created;                        /* the trials 1 to this number have jobs */
    int succeeded, failed;              /* of the trials whose end is stored */
    int max_parallel;                   /* trials that may be unfinished */
    int max_failures;                   /* more failed trials than this end the sweep */
    const enum sweep_trial_state *open; /* [n_open] the trials whose end is not stored */
    size_t n_open;
};

enum sweep_trial_action {
    SWEEP_TRIAL_KEEP,
    SWEEP_TRIAL_STORE_END,
    SWEEP_TRIAL_CANCEL,
};

enum sweep_end {
    SWEEP_GOES_ON,
    SWEEP_END_SUCCEEDED,
    SWEEP_END_FAILED,
    SWEEP_END_CANCELLED,
};

struct sweep_decision {
    int start; /* create so many further trials */
    bool stop; /* the sweep becomes `cancelling` and `stopped`, with the reason; then decide again */
    enum sweep_end end;
    char reason[160]; /* of `stop` and of SWEEP_END_FAILED, unless the sweep was stopped */
};

/* actions: [n_open] for each open trial. Carry out the actions of trials first, then the others:
 *
 *   - the end of a job that has ended is stored
 *   - jobs of a cancelling sweep and of trials that a rung has stopped are cancelled
 *   - a sweep with more than max_failures FAILED trials is stopped
 *   - any other sweep gets further trials, while fewer than max_parallel are unfinished and some are left
 *   - a sweep without unfinished trials ends if it is cancelling or no trial is left: CANCELLED if a user cancelled it,
 *     FAILED if it was stopped or no trial SUCCEEDED, else SUCCEEDED */
void sweep_decide(const struct sweep_state *s, enum sweep_trial_action *actions, struct sweep_decision *ret);

#endif
