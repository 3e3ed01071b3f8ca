/* Where a gang goes: a pure choice, the same for the same input. */
#ifndef SERVICE_SCHEDULER_PLACEMENT_H
#define SERVICE_SCHEDULER_PLACEMENT_H

#include <stdbool.h>

/* A host that may take ranks now. `order` breaks ties, so that two equal hosts are always taken the same way round. */
struct placement_host {
    int host; /* the caller's index */
    int free; /* slots */
    int order;
};

/* Puts world_size ranks on hosts, one slot each: ret_host[rank] = host. Everything or nothing: false when the slots do
 * not suffice. One host that holds the whole gang is best (the fullest such, so that wide gaps stay for wide gangs);
 * else the hosts with most room first, so that few hosts are crossed. Ranks of one host are adjacent, since neighbours
 * exchange first. `hosts` is reordered. */
bool placement_choose(struct placement_host *hosts, int n_hosts, int world_size, int *ret_host /* [world_size] */);

#endif
