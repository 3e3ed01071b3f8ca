/* The lock of a job's row. Every transaction that writes anything of the job takes it first. The only exception is
 * store_checkpoint_deleted, which changes a row that no other statement changes. Internal to the store. */
#ifndef SERVICE_STORE_JOB_LOCK_H
#define SERVICE_STORE_JOB_LOCK_H

#include "service/store/sql.h"
#include "service/store/state.h"

#include <stdbool.h>

struct job_lock {
    int64_t job;
    enum store_job_state state;
    int attempt, restarts;
    int64_t last_event;
    bool deleted; /* marked: no query finds the job */
};
/* Locks the row until the transaction ends. NOT_FOUND without the job, or if it is marked as deleted. */
MUST_CHECK status_t job_lock(struct connection *c, int64_t job, struct job_lock *ret, struct err *e);
/* The same, also for a job that is marked as deleted. */
MUST_CHECK status_t job_lock_marked(struct connection *c, int64_t job, struct job_lock *ret, struct err *e);

/* FAILED_PRECONDITION ("fenced") if attempt is not the job's current one. */
MUST_CHECK status_t job_lock_fence(const struct job_lock *l, int attempt, struct err *e);

/* Whether this request was stored before. ALREADY_EXISTS if it was, for another job. ret_event may be NULL. */
MUST_CHECK status_t request_seen(struct connection *c, const char *request_id, int64_t job, bool *ret_seen,
                                 int64_t *ret_event, struct err *e);

/* Writes the job's next event; request_id may be NULL. *ret_number may be NULL. */
MUST_CHECK status_t event_write(struct connection *c, int64_t job, int attempt, const char *kind, const char *message,
                                const char *request_id, int64_t *ret_number, struct err *e);

#endif
