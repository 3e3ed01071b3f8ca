/* The archive that a new job uses. Internal to the store. */
#ifndef SERVICE_STORE_JOB_CODE_H
#define SERVICE_STORE_JOB_CODE_H

#include "service/store/sql.h"

/* In the transaction that creates the job. FAILED_PRECONDITION: the archive is not complete. */
MUST_CHECK status_t job_code_insert(struct connection *c, int64_t job, const uint8_t *archive, struct err *e);

#endif
