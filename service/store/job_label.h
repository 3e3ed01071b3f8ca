/* The labels of a new job. Internal to the store. */
#ifndef SERVICE_STORE_JOB_LABEL_H
#define SERVICE_STORE_JOB_LABEL_H

#include "service/store/job.h"
#include "service/store/sql.h"

/* In the transaction that creates the job. */
MUST_CHECK status_t job_labels_insert(struct connection *c, int64_t job, const struct store_job_label *labels, size_t n,
                                      struct err *e);

#endif
