#include "executor/engine/run/arena.h"

#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Where each family begins, and the end of the last one. */
static size_t cut_families(const struct plan *const *plans, int n, size_t begin[FAMILIES]) {
    size_t at = 0;
    for (int f = 0; f < FAMILIES; f++) {
        size_t most = 0;
        for (int i = 0; i < n; i++)
            most = plans[i]->family_bytes[f] > most ? plans[i]->family_bytes[f] : most;
        begin[f] = at;
        at += up(most, PLAN_ALIGN);
    }
    return at;
}

size_t arena_bytes(const struct plan *const *plans, int n) {
    size_t begin[FAMILIES];
    return cut_families(plans, n, begin);
}

/* A mapping on a huge page's edge: more is mapped, and what is too much before and behind is given back. */
static char *map_aligned(size_t bytes) {
    char *base = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    char *at = (char *)up((size_t)base, HUGE_PAGE);
    if (at > base)
        munmap(base, (size_t)(at - base));
    if (at < base + HUGE_PAGE)
        munmap(at + bytes, (size_t)(base + HUGE_PAGE - at));
    return at;
}

static size_t mapped(const struct arena *a) { return up(a->bytes ? a->bytes : 1, 4096); }

status_t arena_open(struct arena *a, const struct plan *const *plans, int n, struct err *e) {
    size_t begin[FAMILIES];
    memset(a, 0, sizeof *a);
    a->bytes = cut_families(plans, n, begin);
    char *base = map_aligned(mapped(a));
    if (!base)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the plan needs %zu bytes of memory, which the system refuses",
                       a->bytes);
    (void)madvise(base, mapped(a), MADV_HUGEPAGE); /* a wish: small pages are only slower */
    a->base = base;
    for (int f = 0; f < FAMILIES; f++)
        a->family[f] = base + begin[f];
    /* Zeros matter: the padding of gradient space is never written again. */
    const size_t pages = mapped(a) / 4096;
#pragma omp parallel for schedule(static)
    for (size_t page = 0; page < pages; page++)
        base[page * 4096] = 0;
    return ST_OK;
}

void arena_close(struct arena *a) {
    if (a->base)
        munmap(a->base, mapped(a));
    memset(a, 0, sizeof *a);
}
