/* Queues: groups of jobs that have not ended, by the name of their queue. They have no table. */
#ifndef SERVICE_STORE_QUEUE_H
#define SERVICE_STORE_QUEUE_H

#include "service/store/store.h"

#include <stddef.h>
#include <stdint.h>

enum { STORE_SLOT_CPU, STORE_SLOT_CUDA, STORE_SLOT_KINDS };

struct store_queue {
    const char *name;
    int64_t waiting, running, paused; /* QUEUED; neither QUEUED nor PAUSED; PAUSED */
    int64_t used[STORE_SLOT_KINDS];   /* slots of ranks that have not ended, as store_executor_list counts them */
    int64_t wanted[STORE_SLOT_KINDS]; /* slots of QUEUED jobs */
    int64_t oldest, oldest_time_us;   /* the QUEUED job with the lowest id, and its create_time; 0: none */
};
/* By name, those after `after` (NULL or "": from the first). */
MUST_CHECK status_t store_queue_list(struct store *s, struct store_memory *m, const char *after, int limit,
                                     struct store_queue **ret, size_t *ret_n, struct err *e);

#endif
