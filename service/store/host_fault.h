/* Faults of hosts: what an executor lacked for a job, stored for later leaders and for users. */
#ifndef SERVICE_STORE_HOST_FAULT_H
#define SERVICE_STORE_HOST_FAULT_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many hosts a job avoids: the last ones that failed it, as in the scheduler. */
#define STORE_MAX_AVOIDED_HOSTS 8

struct store_host_fault {
    const char *request_id;
    int64_t job;
    int attempt;
    const char *executor;
    int cause;          /* of trainyard.v1.WorkerEnd.Cause */
    const char *reason; /* one sentence */
    bool checkpoint;    /* the host could not read the checkpoint that the attempt began with */
    int64_t window_ms;  /* faults of an executor with less time between them are counted together */
};

/* Stores that the job avoids the host, and the fault in the executor's row. With `checkpoint`, a COMMITTED checkpoint
 * gets unreadable_time and keeps its state. Writes an event "host_fault" or "checkpoint_unreadable". */
MUST_CHECK status_t store_host_fault(struct store *s, int64_t epoch, const struct store_host_fault *fault,
                                     struct err *e);

struct store_avoided_host {
    int64_t job;
    const char *executor, *reason;
    int cause;
    int64_t age_ms;
};
struct store_unreadable {
    int64_t job; /* its last attempt began with the checkpoint */
    int64_t age_ms;
};
struct store_host_faults {
    const struct store_avoided_host *avoided; /* by job, oldest first */
    size_t n_avoided;
    const struct store_unreadable *unreadable; /* by job */
    size_t n_unreadable;
};
/* For the jobs with ids first to last that have not ended: the hosts that failed them less than window_ms ago, and
 * since when the checkpoints that they would resume from cannot be read. */
MUST_CHECK status_t store_host_faults(struct store *s, struct store_memory *m, int64_t first, int64_t last,
                                      int64_t window_ms, struct store_host_faults *ret, struct err *e);

#endif
