/* Copies objects into the cache. */
#ifndef EXECUTOR_DATA_COPY_H
#define EXECUTOR_DATA_COPY_H

#include "executor/data/peer.h"

#include <stdatomic.h>

struct copy_progress {
    _Atomic int objects;        /* that are there */
    _Atomic int64_t received;   /* bytes */
    _Atomic int64_t from_peers; /* of these objects */
    _Atomic int64_t from_stores;
};

/* Copies the n objects, whose bytes are reserved and of which the peers were asked, on PARALLEL_THREADS threads.
 * Each is known, or found in the cache because another process has copied it meanwhile. `end` stops the requests of
 * all threads; it is set after a failure. */
MUST_CHECK status_t copy_objects(struct data_cache *c, struct peers *peers, struct data_object *const *objects, int n,
                                 struct copy_progress *progress, atomic_bool *end, struct err *e);

#endif
