/* What a job begins with, inside a transaction. Internal to the store. */
#ifndef SERVICE_STORE_JOB_ORIGIN_H
#define SERVICE_STORE_JOB_ORIGIN_H

#include "service/store/job.h"
#include "service/store/sql.h"

/* Locks the origin's job, so that retention and this transaction see each other's work. NOT_FOUND,
 * FAILED_PRECONDITION: no such checkpoint, or not COMMITTED. *ret_step: its step. */
MUST_CHECK status_t origin_hold(struct connection *c, const struct store_origin *origin, int64_t *ret_step,
                                struct err *e);
/* Locks the job of what this one began with, if it began with anything: before this one's own row, since its id is the
 * lower one. Retention then waits for this transaction, or has done its work. */
MUST_CHECK status_t origin_lock(struct connection *c, int64_t job, struct err *e);
/* Under that lock: whether the job has no COMMITTED checkpoint, and what it began with is COMMITTED no more; then
 * ret_why is a sentence for its user. */
MUST_CHECK status_t origin_gone(struct connection *c, int64_t job, bool *ret_gone, struct err *ret_why, struct err *e);
/* The row of a job that was just made, and its event. */
MUST_CHECK status_t origin_write(struct connection *c, int64_t job, const struct store_origin *origin, int64_t step,
                                 struct err *e);

/* In statements over attempt a: the folder of the weights that its job begins with. */
#define ORIGIN_WEIGHTS_DIRECTORY                                                                                       \
    "coalesce((SELECT k.directory FROM job_origin o JOIN checkpoint k ON k.id = o.checkpoint "                         \
    "WHERE o.job = a.job AND o.weights_only), '')"

#endif
