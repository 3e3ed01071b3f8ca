#include "engine/run/arena.h"

#include <string.h>

static size_t align_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Sets the begin of each family and returns the end of the last one. */
static size_t place_families(const struct plan *const *plans, int n, size_t begin[FAMILIES]) {
    size_t at = 0;
    for (int f = 0; f < FAMILIES; f++) {
        size_t max = 0;
        for (int i = 0; i < n; i++)
            max = plans[i]->family_bytes[f] > max ? plans[i]->family_bytes[f] : max;
        begin[f] = at;
        at += align_up(max, PLAN_ALIGN);
    }
    return at;
}

size_t arena_bytes(const struct plan *const *plans, int n) {
    size_t begin[FAMILIES];
    return place_families(plans, n, begin);
}

status_t arena_open(struct arena *a, const struct kernels *kernels, const struct plan *const *plans, int n,
                    struct err *e) {
    size_t begin[FAMILIES];
    struct err why = { "" };
    void *base = NULL;
    memset(a, 0, sizeof *a);
    a->bytes = place_families(plans, n, begin);
    status_t st = kernels->memory_new(kernels, a->bytes, &base, &why);
    if (st != ST_OK)
        return err_set(e, st, "the plan needs %zu bytes of memory: %s", a->bytes, why.msg);
    a->kernels = kernels;
    a->base = base;
    for (int f = 0; f < FAMILIES; f++)
        a->family[f] = a->base + begin[f];
    /* The zeros are needed: steps read the padding of gradient space and never write it. */
    return kernels->fill(kernels, base, 0, (int64_t)(a->bytes / sizeof(float)), e);
}

void arena_close(struct arena *a) {
    if (a->kernels)
        a->kernels->memory_free(a->kernels, a->base);
    memset(a, 0, sizeof *a);
}
