/* Sweeps: a spec of many trials, a state and counts of trials. sweep_trial.h has the trials. The row's lock is taken
 * before the row of a job that has ended, and after that of a new job. */
#ifndef SERVICE_STORE_SWEEP_H
#define SERVICE_STORE_SWEEP_H

#include "service/store/state.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

struct store_sweep_new {
    const char *name, *request_id;
    const char *user;              /* who creates it; NULL: not known */
    const uint8_t *request_digest; /* 32 bytes that identify the request */
    const void *spec;              /* the resolved SweepSpec, packed; opaque here */
    size_t spec_bytes;
    bool maximize; /* a higher metric is better */
    int trials;
};

struct store_sweep {
    int64_t id;
    const char *name, *reason, *user;
    enum store_sweep_state state;
    int trials, created, ended, succeeded, failed, stopped; /* created: the trials 1 to this number have a row */
    int best; /* of the trials that SUCCEEDED, the one with the best finite metric; 0: none */
    int64_t create_time_us, end_time_us;
    const void *spec; /* NULL in lists */
    size_t spec_bytes;
};

/* Stores a RUNNING sweep. A repeated request returns the sweep of the first one. ALREADY_EXISTS: the request id was
 * used for another sweep, or another sweep has the name. */
MUST_CHECK status_t store_sweep_create(struct store *s, struct store_memory *m, int64_t epoch,
                                       const struct store_sweep_new *new, struct store_sweep *ret, struct err *e);
/* The sweep that a request created. NOT_FOUND: none. ALREADY_EXISTS: the request had another digest. */
MUST_CHECK status_t store_sweep_requested(struct store *s, struct store_memory *m, const char *request_id,
                                          const uint8_t *digest, struct store_sweep *ret, struct err *e);
/* NOT_FOUND: "sweeps/lr does not exist". */
MUST_CHECK status_t store_sweep_get(struct store *s, struct store_memory *m, const char *name, struct store_sweep *ret,
                                    struct err *e);
/* Newest first, with ids below `before` (0: from the newest), without specs. */
MUST_CHECK status_t store_sweep_list(struct store *s, struct store_memory *m, int64_t before, int limit,
                                     struct store_sweep **ret, size_t *ret_n, struct err *e);
/* The next RUNNING or CANCELLING sweep by id, after `after`; id 0: none. */
MUST_CHECK status_t store_sweep_open_next(struct store *s, struct store_memory *m, int64_t after,
                                          struct store_sweep *ret, struct err *e);

/* What /metrics reports of a sweep that has not ended. */
struct store_sweep_brief {
    const char *name;
    int trials, created, ended, succeeded, failed;
    double best_metric; /* of the trials that SUCCEEDED; NAN: none */
    int64_t open;       /* all sweeps that have not ended */
};
/* At most `limit` of them, by id. */
MUST_CHECK status_t store_sweep_briefs(struct store *s, struct store_memory *m, int limit,
                                       struct store_sweep_brief **ret, size_t *ret_n, struct err *e);

/* RUNNING becomes CANCELLING, so that no further trial can be created. A CANCELLING or CANCELLED sweep does not change.
 * FAILED_PRECONDITION: it is SUCCEEDED or FAILED. */
MUST_CHECK status_t store_sweep_cancel(struct store *s, int64_t epoch, const char *name, struct err *e);
/* RUNNING becomes CANCELLING with a reason, so that it ends as FAILED. Changes nothing in any other state. */
#define STORE_SWEEP_REASON_BYTES 500 /* longer reasons are cut */
MUST_CHECK status_t store_sweep_stop(struct store *s, int64_t epoch, int64_t id, const char *reason, struct err *e);
/* To a final state. FAILED_PRECONDITION: the sweep is not in `from`, or a trial has not ended. */
MUST_CHECK status_t store_sweep_end(struct store *s, int64_t epoch, int64_t id, enum store_sweep_state from,
                                    enum store_sweep_state to, const char *reason, struct err *e);
/* Deletes an ended sweep and the rows of its trials; the jobs stay. FAILED_PRECONDITION: it has not ended. */
MUST_CHECK status_t store_sweep_delete(struct store *s, int64_t epoch, const char *name, struct err *e);
/* Deletes at most `limit` sweeps that ended more than `days` ago. */
MUST_CHECK status_t store_sweep_delete_old(struct store *s, int64_t epoch, int days, int limit, int64_t *ret_n,
                                           struct err *e);

#endif
