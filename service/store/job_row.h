/* The columns of a job, once. Internal to the store. */
#ifndef SERVICE_STORE_JOB_ROW_H
#define SERVICE_STORE_JOB_ROW_H

#include "service/store/job.h"
#include "service/store/sql.h"

#define JOB_COLUMNS                                                                                                    \
    "j.id, j.name, j.queue, j.state, j.reason, j.priority, j.world_size, j.accelerator, j.max_restarts, j.restarts, "  \
    "j.attempt, j.steps, j.step, j.last_event, j.weights_sha256, j.create_time, j.start_time, j.end_time, s.body"
#define JOB_COLUMNS_N 19

/* Texts point into r. */
void job_row_read(const PGresult *r, int row, struct store_job *ret);

#endif
