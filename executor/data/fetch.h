/* The order of trainyard-data: from URIs to copies in the cache. */
#ifndef EXECUTOR_DATA_FETCH_H
#define EXECUTOR_DATA_FETCH_H

#include "executor/data/copy.h"

struct fetch {
    const Trainyard__V1__DataFetch *order;
    struct stores stores;
    struct data_cache *cache; /* NULL: `check` */
    struct peers peers;
    struct data_objects objects;
    struct copy_progress progress;
    atomic_bool end;
    /* What the objects are, as soon as it is known, for progress. */
    _Atomic int n_objects;
    _Atomic int64_t bytes, to_copy_bytes;
    _Atomic bool waits; /* for space that other processes use */
};

/* Fills stores, cache and objects. INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED: no host can do it. */
MUST_CHECK status_t fetch_run(struct fetch *f, struct err *e);
/* Overwrites the keys. The copies stay in use. */
void fetch_done_stores(struct fetch *f);
void fetch_done(struct fetch *f);

#endif
