#include "service/scheduler/placement.h"

#include <stddef.h>
#include <stdlib.h>

static int by_free_slots(const void *a, const void *b) {
    const struct placement_host *x = a, *y = b;
    if (x->free != y->free)
        return x->free > y->free ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* The fullest host, so that wide gaps remain for wide gangs. */
static const struct placement_host *fullest_that_fits(const struct placement_host *hosts, int n, int world_size) {
    const struct placement_host *best = NULL;
    for (int i = 0; i < n; i++) {
        const struct placement_host *h = &hosts[i];
        if (h->free < world_size)
            continue;
        if (!best || h->free < best->free || (h->free == best->free && h->order < best->order))
            best = h;
    }
    return best;
}

bool placement_choose(struct placement_host *hosts, int n_hosts, int world_size, int *ret_host) {
    const struct placement_host *one = fullest_that_fits(hosts, n_hosts, world_size);
    if (one) {
        for (int r = 0; r < world_size; r++)
            ret_host[r] = one->host;
        return true;
    }
    long free_slots = 0;
    for (int i = 0; i < n_hosts; i++)
        free_slots += hosts[i].free > 0 ? hosts[i].free : 0;
    if (free_slots < world_size)
        return false;
    qsort(hosts, (size_t)n_hosts, sizeof *hosts, by_free_slots);
    int rank = 0;
    for (int i = 0; i < n_hosts && rank < world_size; i++)
        for (int s = 0; s < hosts[i].free && rank < world_size; s++)
            ret_host[rank++] = hosts[i].host;
    return true;
}
