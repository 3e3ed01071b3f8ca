/* All of a rank's training memory: one mapping, cut by family as the plans ask, in huge pages where the kernel has
 * them, and touched once when it is opened, so that no step ever waits for a page. `bytes` is what the plans say, to
 * the byte: for each family the most that any of them wants, each family on 64 bytes. */
#ifndef EXECUTOR_ENGINE_RUN_ARENA_H
#define EXECUTOR_ENGINE_RUN_ARENA_H

#include "executor/engine/plan/plan.h"

struct arena {
    char *base; /* aligned to a huge page */
    size_t bytes;
    char *family[FAMILIES];
};

/* RESOURCE_EXHAUSTED tells the bytes. */
MUST_CHECK status_t arena_open(struct arena *a, const struct plan *const *plans, int n, struct err *e);
void arena_close(struct arena *a);
size_t arena_bytes(const struct plan *const *plans, int n);

#endif
