/* The statement that moves a job's row. Internal to the store. */
#ifndef SERVICE_STORE_JOB_MOVE_H
#define SERVICE_STORE_JOB_MOVE_H

#include "service/store/job.h"
#include "service/store/sql.h"

/* With the job's row locked: the move and its event, whose number is *ret_event. NOT_FOUND when the row is not where
 * the move begins, FAILED_PRECONDITION when there is no such edge. request_id may be NULL. */
MUST_CHECK status_t job_move_row(struct connection *c, const struct store_job_move *in, int64_t *ret_event,
                                 struct err *e);

#endif
