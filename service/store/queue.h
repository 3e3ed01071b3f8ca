/* Queues: what jobs that have not ended are grouped by. There is no table of them. */
#ifndef SERVICE_STORE_QUEUE_H
#define SERVICE_STORE_QUEUE_H

#include "service/store/store.h"

#include <stddef.h>
#include <stdint.h>

enum { STORE_SLOT_CPU, STORE_SLOT_CUDA, STORE_SLOT_KINDS };

struct store_queue {
    const char *name;
    int64_t waiting, running, paused; /* QUEUED; neither; PAUSED */
    int64_t used[STORE_SLOT_KINDS];   /* slots of ranks that have not ended, as store_executor_list counts them */
    int64_t wanted[STORE_SLOT_KINDS]; /* by those that wait */
    int64_t oldest, oldest_time_us; /* the job that waits and has the lowest id, and its create_time; 0 = none waits */
};
/* By name; those after `after` (NULL or "" = from the first). */
MUST_CHECK status_t store_queue_list(struct store *s, struct store_memory *m, const char *after, int limit,
                                     struct store_queue **ret, size_t *ret_n, struct err *e);

#endif
