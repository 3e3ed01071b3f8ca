#include "service/scheduler/placement.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The index of the first host with at least so many free slots, at this order or a later one. */
static size_t place_of(const struct placement_index *x, int free_slots, int order) {
    size_t low = 0, high = x->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct placement_host *h = &x->hosts[middle];
        if (h->free < free_slots || (h->free == free_slots && h->order < order))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void remove_at(struct placement_index *x, size_t at) {
    x->n--;
    memmove(x->hosts + at, x->hosts + at + 1, (x->n - at) * sizeof *x->hosts);
}

void placement_index_move(struct placement_index *x, int before, struct placement_host host) {
    if (before == host.free)
        return;
    if (before > 0) {
        const size_t at = place_of(x, before, host.order);
        assert(at < x->n && x->hosts[at].executor == host.executor);
        remove_at(x, at);
    }
    if (host.free <= 0)
        return;
    if (x->n == x->cap) {
        x->cap = x->cap ? 2 * x->cap : 16;
        x->hosts = alloc_resize(x->hosts, x->cap, sizeof *x->hosts);
    }
    const size_t at = place_of(x, host.free, host.order);
    memmove(x->hosts + at + 1, x->hosts + at, (x->n - at) * sizeof *x->hosts);
    x->hosts[at] = host;
    x->n++;
}

void placement_index_done(struct placement_index *x) {
    free(x->hosts);
    *x = (struct placement_index){ 0 };
}

/* The fullest host with so many free slots, so that wide gaps remain for wide gangs. */
static struct executor *one_host(const struct placement_index *x, int ranks,
                                 bool (*usable)(const void *, const struct executor *), const void *ctx) {
    for (size_t i = place_of(x, ranks, 0); i < x->n; i++)
        if (usable(ctx, x->hosts[i].executor))
            return x->hosts[i].executor;
    return NULL;
}

/* Fills ret_host from the hosts with the most free slots down; hosts with the same number in their order. */
static int spread(const struct placement_index *x, int max, bool (*usable)(const void *, const struct executor *),
                  const void *ctx, struct executor **ret_host) {
    int ranks = 0;
    for (size_t end = x->n, first; end > 0 && ranks < max; end = first) {
        first = place_of(x, x->hosts[end - 1].free, 0);
        for (size_t i = first; i < end && ranks < max; i++) {
            if (!usable(ctx, x->hosts[i].executor))
                continue;
            for (int slot = 0; slot < x->hosts[i].free && ranks < max; slot++)
                ret_host[ranks++] = x->hosts[i].executor;
        }
    }
    return ranks;
}

int placement_choose(const struct placement_index *x, int need, int max,
                     bool (*usable)(const void *, const struct executor *), const void *ctx,
                     struct executor **ret_host) {
    int ranks = max;
    struct executor *one = one_host(x, max, usable, ctx);
    if (!one) {
        ranks = spread(x, max, usable, ctx, ret_host);
        if (ranks < need)
            return 0;
        if (ranks < max) /* all free slots together are fewer than max: they may be those of one host */
            one = one_host(x, ranks, usable, ctx);
    }
    for (int r = 0; one && r < ranks; r++)
        ret_host[r] = one;
    return ranks;
}
