#include "service/scheduler/state.h"

#include <stdlib.h>

/* A scheduler that cannot remember a job has no better answer than to stop: the rows hold everything. */
static void *or_abort(void *p) {
    if (!p)
        abort();
    return p;
}

void *scheduler_alloc(size_t n, size_t size) { return or_abort(calloc(n ? n : 1, size)); }
void *scheduler_grow(void *p, size_t n, size_t size) { return or_abort(reallocarray(p, n, size)); }
