/* Notifications about events (migrations/0030): a row for each event and target, in the order of the events of a job.
 * The row is written in the transaction of its event and is deleted when it was delivered, or given up. */
#ifndef SERVICE_STORE_NOTIFICATION_H
#define SERVICE_STORE_NOTIFICATION_H

#include "service/store/state.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

#define STORE_MAX_NOTIFICATION_TARGETS 8
/* What a target is notified of. */
struct store_notification_target {
    const char *name;
    const int32_t *states; /* [n_states] of enum store_job_state: a job reaches one of them */
    size_t n_states;
    const char *const *kinds; /* [n_kinds] of events; also "executor_lost" and "device_quarantined" */
    size_t n_kinds;
};
/* From now on the events that this store writes leave notifications; without it they leave none, whatever the targets
 * are. Call it before another thread uses the store. */
void store_notifications_enable(struct store *s);
/* Replaces the targets. The notifications of a target that is no longer there are dropped. */
MUST_CHECK status_t store_notification_targets(struct store *s, int64_t epoch,
                                               const struct store_notification_target *targets, size_t n,
                                               struct err *e);

enum { STORE_DELIVERY_BYTES = 37 };
struct store_notification {
    int64_t id;
    char delivery[STORE_DELIVERY_BYTES]; /* a UUID, the same in each try */
    int64_t time_us;
    const char *kind;
    int64_t job; /* 0: not a job's event; then job_name is "", and state and attempt are 0 */
    const char *job_name;
    enum store_job_state state;
    int attempt;
    const char *executor; /* "": none */
    const char *message;
    int tries; /* that have failed */
};
/* The oldest notification of a target. */
MUST_CHECK status_t store_notification_next(struct store *s, struct store_memory *m, const char *target,
                                            struct store_notification *ret, bool *ret_found, struct err *e);
/* It was delivered, or is given up. */
MUST_CHECK status_t store_notification_done(struct store *s, int64_t epoch, int64_t id, struct err *e);
/* A try has failed. */
MUST_CHECK status_t store_notification_failed(struct store *s, int64_t epoch, int64_t id, struct err *e);
/* Drops the oldest notifications of a target beyond `keep`. *ret_n: how many. */
MUST_CHECK status_t store_notification_trim(struct store *s, int64_t epoch, const char *target, int keep,
                                            int64_t *ret_n, struct err *e);
/* How many wait for a target. */
MUST_CHECK status_t store_notification_waiting(struct store *s, const char *target, int64_t *ret, struct err *e);

#endif
