#include "executor/engine/run/arena.h"

#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static size_t aligned(size_t n) { return (n + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

status_t arena_open(struct arena *a, const struct plan *const *plans, int n, struct err *e) {
    size_t most[FAMILIES] = { 0 };
    for (int i = 0; i < n; i++)
        for (int f = 0; f < FAMILIES; f++)
            if (most[f] < plans[i]->family_bytes[f])
                most[f] = plans[i]->family_bytes[f];
    size_t total = HUGE_PAGE;
    for (int f = 0; f < FAMILIES; f++)
        total += aligned(most[f]);
    char *base = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the plan needs %zu bytes of memory, which the system refuses", total);
    (void)madvise(base, total, MADV_HUGEPAGE); /* a wish: small pages are only slower */
    a->base = base;
    a->bytes = total;
    char *at = (char *)(aligned((size_t)base));
    for (int f = 0; f < FAMILIES; f++) {
        a->family[f] = at;
        at += aligned(most[f]);
    }
    /* Zeros matter: the padding of gradient space is never written again. */
#pragma omp parallel for schedule(static)
    for (size_t page = 0; page < total / 4096; page++)
        base[page * 4096] = 0;
    return ST_OK;
}

void arena_close(struct arena *a) {
    if (a->base)
        munmap(a->base, a->bytes);
    memset(a, 0, sizeof *a);
}
