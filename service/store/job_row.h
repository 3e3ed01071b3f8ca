/* The columns of a job. Internal to the store. */
#ifndef SERVICE_STORE_JOB_ROW_H
#define SERVICE_STORE_JOB_ROW_H

#include "service/store/job.h"
#include "service/store/sql.h"

/* From job j and job_spec s. */
extern const struct sql_row JOB_ROW;

#endif
