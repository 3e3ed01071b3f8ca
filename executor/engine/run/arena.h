/* All of a rank's training memory: one mapping, cut by family as the plans ask, in huge pages where the kernel has
 * them, and touched once when it is opened, so that no step ever waits for a page. */
#ifndef EXECUTOR_ENGINE_RUN_ARENA_H
#define EXECUTOR_ENGINE_RUN_ARENA_H

#include "executor/engine/plan/plan.h"

struct arena {
    char *base;
    size_t bytes;
    char *family[FAMILIES]; /* aligned to a huge page */
};

/* A family gets the most that any of the plans wants of it. RESOURCE_EXHAUSTED tells the bytes. */
MUST_CHECK status_t arena_open(struct arena *a, const struct plan *const *plans, int n, struct err *e);
void arena_close(struct arena *a);

#endif
