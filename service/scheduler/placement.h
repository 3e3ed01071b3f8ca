/* Chooses the hosts of a gang. A pure function: the same input gives the same result. */
#ifndef SERVICE_SCHEDULER_PLACEMENT_H
#define SERVICE_SCHEDULER_PLACEMENT_H

#include <stdbool.h>

/* A host that may take ranks now. `order` breaks ties, so that equal hosts are always taken in the same order. */
struct placement_host {
    int host; /* the caller's index */
    int free; /* slots */
    int order;
};

/* Puts world_size ranks on hosts, one slot each: ret_host[rank] = host. False: there are too few slots, and no rank is
 * placed. If the whole gang fits on one host, takes the fullest such host, so that hosts with many free slots stay free
 * for large gangs. Otherwise takes the hosts with the most free slots first, so that the gang uses few hosts. Ranks of
 * one host are adjacent, because neighbours exchange first. May reorder `hosts`. */
bool placement_choose(struct placement_host *hosts, int n_hosts, int world_size, int *ret_host /* [world_size] */);

#endif
