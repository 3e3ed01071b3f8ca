/* All of a rank's training memory on its device: one allocation, divided into the families of plan.h. For each family
 * it has the largest size that one of the plans needs, aligned to 64 bytes; `bytes` is the sum, exact to the byte. */
#ifndef ENGINE_RUN_ARENA_H
#define ENGINE_RUN_ARENA_H

#include "engine/plan/plan.h"
#include "kernels/kernels.h"

struct arena {
    const struct kernels *kernels; /* borrowed until arena_close */
    char *base;                    /* device memory */
    size_t bytes;
    char *family[FAMILIES];
};

/* Filled with zeros, so that no step waits for a page fault. RESOURCE_EXHAUSTED names the bytes. */
MUST_CHECK status_t arena_open(struct arena *a, const struct kernels *kernels, const struct plan *const *plans, int n,
                               struct err *e);
void arena_close(struct arena *a);
size_t arena_bytes(const struct plan *const *plans, int n);

#endif
