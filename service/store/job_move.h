/* The statement that changes a job's state. Internal to the store. */
#ifndef SERVICE_STORE_JOB_MOVE_H
#define SERVICE_STORE_JOB_MOVE_H

#include "service/store/job.h"
#include "service/store/sql.h"

/* Moves the job and writes the event, whose number is *ret_event. The caller has locked the job's row. NOT_FOUND if the
 * row is not in the state `from`, FAILED_PRECONDITION if there is no such edge. in->request_id may be NULL. */
MUST_CHECK status_t job_move_row(struct connection *c, const struct store_job_move *in, int64_t *ret_event,
                                 struct err *e);

#endif
