/* All of a rank's training memory on its device: one piece, cut by family as the plans ask. `bytes` is what the plans
 * say, to the byte: for each family the most that any of them wants, each family on 64 bytes. */
#ifndef EXECUTOR_ENGINE_RUN_ARENA_H
#define EXECUTOR_ENGINE_RUN_ARENA_H

#include "executor/engine/plan/plan.h"
#include "kernels/kernels.h"

struct arena {
    const struct kernels *kernels; /* borrowed until arena_close */
    char *base;                    /* the device's, as all of it */
    size_t bytes;
    char *family[FAMILIES];
};

/* Full of zeros, and so touched once: no step ever waits for a page. RESOURCE_EXHAUSTED tells the bytes. */
MUST_CHECK status_t arena_open(struct arena *a, const struct kernels *kernels, const struct plan *const *plans, int n,
                               struct err *e);
void arena_close(struct arena *a);
size_t arena_bytes(const struct plan *const *plans, int n);

#endif
