/* The job's row, locked: taken first by every transaction that writes anything of the job. Only
 * store_checkpoint_deleted takes none: it changes one row, which nobody else does. Internal to the store. */
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
    bool deleted; /* marked: gone for every question */
};
/* Until the transaction ends. NOT_FOUND without the job, or for a deleted one. */
MUST_CHECK status_t job_lock(struct connection *c, int64_t job, struct job_lock *ret, struct err *e);
/* The same, of a deleted job too. */
MUST_CHECK status_t job_lock_marked(struct connection *c, int64_t job, struct job_lock *ret, struct err *e);

/* FAILED_PRECONDITION ("fenced") unless attempt is the job's current one. */
MUST_CHECK status_t job_lock_fence(const struct job_lock *l, int attempt, struct err *e);

/* Has this request been stored already? ALREADY_EXISTS when it was, for another job. */
MUST_CHECK status_t request_seen(struct connection *c, const char *request_id, int64_t job, bool *ret_seen,
                                 int64_t *ret_event, struct err *e);

/* Writes the job's next event; request_id may be NULL. *ret_number may be NULL. */
MUST_CHECK status_t event_write(struct connection *c, int64_t job, int attempt, const char *kind, const char *message,
                                const char *request_id, int64_t *ret_number, struct err *e);

#endif
