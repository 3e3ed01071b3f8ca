/* The row of a trial, in the transaction that creates its job. Internal to the store. */
#ifndef SERVICE_STORE_TRIAL_INSERT_H
#define SERVICE_STORE_TRIAL_INSERT_H

#include "service/store/sql.h"

/* FAILED_PRECONDITION: the sweep is not RUNNING, or `number` is not its next trial. */
MUST_CHECK status_t trial_insert(struct connection *c, int64_t sweep, int number, int64_t job, struct err *e);

#endif
