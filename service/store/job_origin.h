/* The origin of a job: the checkpoint of another job that it begins with. Internal to the store. */
#ifndef SERVICE_STORE_JOB_ORIGIN_H
#define SERVICE_STORE_JOB_ORIGIN_H

#include "service/store/job.h"
#include "service/store/sql.h"

/* Locks the origin's job, so that garbage collection and this transaction see each other's changes, and reads the step
 * of the checkpoint. NOT_FOUND: there is no such checkpoint; FAILED_PRECONDITION: it is not COMMITTED. */
MUST_CHECK status_t origin_lock_checkpoint(struct connection *c, const struct store_origin *origin, int64_t *ret_step,
                                           struct err *e);
/* Locks the job of a job's origin, if there is one. Call it before locking the job's own row, because rows are locked
 * in ascending order of ids. Garbage collection then either waits for this transaction or is complete. */
MUST_CHECK status_t origin_lock(struct connection *c, int64_t job, struct err *e);
/* Whether the job has no COMMITTED checkpoint and its origin is no longer COMMITTED. Then ret_why is a sentence for the
 * user. The caller has called origin_lock. */
MUST_CHECK status_t origin_gone(struct connection *c, int64_t job, bool *ret_gone, struct err *ret_why, struct err *e);
/* Inserts the row of a new job's origin, and its event. */
MUST_CHECK status_t origin_write(struct connection *c, int64_t job, const struct store_origin *origin, int64_t step,
                                 struct err *e);

/* In statements over attempt a: the directory of the weights that its job begins with. */
#define ORIGIN_WEIGHTS_DIRECTORY                                                                                       \
    "coalesce((SELECT k.directory FROM job_origin o JOIN checkpoint k ON k.id = o.checkpoint "                         \
    "WHERE o.job = a.job AND o.weights_only), '')"

#endif
