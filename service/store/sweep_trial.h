/* The trials of sweeps. A trial's row is inserted by store_job_create, in the transaction that creates its job
 * (store_job_new.sweep), if the sweep is RUNNING and the trial before it has a row. So a trial has at most one job, and
 * a cancelled sweep gets no further ones. */
#ifndef SERVICE_STORE_SWEEP_TRIAL_H
#define SERVICE_STORE_SWEEP_TRIAL_H

#include "service/store/state.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

struct store_trial {
    int number;
    int64_t job;                /* 0: it was deleted */
    enum store_job_state state; /* of the job, or the one in which it ended; 0: it was deleted before that was stored */
    int64_t step;
    const char *reason;
    int rungs;               /* the rungs 1 to this number have a result (sweep_rung.h) */
    int64_t stop_step;       /* of the result for which it is stopped; 0: none */
    const char *stop_reason; /* "": it is not stopped */
    bool open;               /* its end is not stored yet */
    bool has_metric;         /* only once it is not open */
    double metric;
};

/* The open trials of a sweep, by number. */
MUST_CHECK status_t store_trial_open(struct store *s, struct store_memory *m, int64_t sweep, struct store_trial **ret,
                                     size_t *ret_n, struct err *e);
/* Trials with numbers above `after`, by number. */
MUST_CHECK status_t store_trial_list(struct store *s, struct store_memory *m, int64_t sweep, int after, int limit,
                                     struct store_trial **ret, size_t *ret_n, struct err *e);
/* Stores the end of a trial and counts it in its sweep; changes nothing if it is stored already. end: number, a final
 * state, step, reason and metric. */
MUST_CHECK status_t store_trial_end(struct store *s, int64_t epoch, int64_t sweep, const struct store_trial *end,
                                    struct err *e);

#endif
