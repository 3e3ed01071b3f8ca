/* Events: the audit trail of a job, from which WatchJob resumes. They are numbered 1, 2, ... for each job under the
 * lock of the job's row, so that a reader that has seen number n has seen all lower ones. */
#ifndef SERVICE_STORE_EVENT_H
#define SERVICE_STORE_EVENT_H

#include "service/store/state.h"
#include "service/store/store.h"

#include <stddef.h>

struct store_event {
    int64_t number, time_us;
    int attempt;
    const char *kind;
    enum store_job_state state; /* the job's, after the event */
    const char *message;
};
/* Those after `after`, oldest first; at most limit (1..LIMIT_PAGE_SIZE). NOT_FOUND without the job. */
MUST_CHECK status_t store_event_list(struct store *s, struct store_memory *m, int64_t job, int64_t after, int limit,
                                     struct store_event **ret, size_t *ret_n, struct err *e);

/* Adds an event without a change of state. request_id as in job.h. */
MUST_CHECK status_t store_event_add(struct store *s, int64_t epoch, const char *request_id, int64_t job, int attempt,
                                    const char *kind, const char *message, int64_t *ret_event, struct err *e);

#endif
