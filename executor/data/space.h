/* The space of a cache: its limit, and what is removed when it is reached. */
#ifndef EXECUTOR_DATA_SPACE_H
#define EXECUTOR_DATA_SPACE_H

#include "executor/data/cache.h"

struct space {
    bool reserved;
    int64_t in_use;     /* bytes of copies that processes use */
    int64_t promised;   /* bytes that other processes may still add */
    int64_t disk_bytes; /* that the disk could take, if nothing remained but what is in use */
};

/* Reserves space for `bytes` in addition to what the cache has. It removes what was not used for longest, and is not in
 * use, until all fits into the cache and on the disk; nothing, if it would not suffice. keys: of n objects that this
 * process is about to copy, sorted: their parts are not removed, and not counted. Without success ret says why; a
 * process that ends, or adds what it has promised, may change that. */
MUST_CHECK status_t space_reserve(struct data_cache *c, int64_t bytes, int n, const char *const *keys,
                                  struct space *ret, struct err *e);

/* The same for bytes in addition to those that are reserved; fewer than none gives some back. */
MUST_CHECK status_t space_reserve_more(struct data_cache *c, int64_t bytes, struct space *ret, struct err *e);

#endif
