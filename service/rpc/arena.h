/* Memory of one reply: everything that a message points to, freed together. Allocation that fails aborts: a reply is
 * bounded by LIMIT_PAGE_SIZE rows. Not thread-safe. */
#ifndef SERVICE_RPC_ARENA_H
#define SERVICE_RPC_ARENA_H

#include "base/cleanup.h"

#include <stddef.h>
#include <trainyard/v1/spec.pb-c.h>

struct arena;
struct arena *arena_new(void);
struct arena *arena_free(struct arena *a);
CLEANUP_DEFINE(struct arena *, arena_free)

void *arena_alloc(struct arena *a, size_t n, size_t size); /* zeroed */
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Freed with the arena; NULL for bytes that are no spec. */
Trainyard__V1__JobSpec *arena_spec(struct arena *a, const void *packed, size_t n);

#endif
