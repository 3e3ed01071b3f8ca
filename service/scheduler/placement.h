/* Chooses the hosts of a gang, from an index of the hosts that have free slots. Pure functions: the same index gives
 * the same choice. The time of a choice is proportional to the hosts that it takes or that the caller refuses, not to
 * the hosts that exist. */
#ifndef SERVICE_SCHEDULER_PLACEMENT_H
#define SERVICE_SCHEDULER_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>

struct executor;

struct placement_host {
    int free;  /* slots */
    int order; /* breaks ties, so that equal hosts are always taken in the same order; unique */
    struct executor *executor;
};

/* Hosts with free slots of one kind, sorted by free slots, then by order. */
struct placement_index {
    struct placement_host *hosts;
    size_t n, cap;
};

/* The host had `before` free slots and has host.free now. A host with 0 is not in the index. */
void placement_index_move(struct placement_index *x, int before, struct placement_host host);
void placement_index_done(struct placement_index *x);

/* Puts ranks on hosts that `usable` accepts, one slot each: as many as there are such slots, at least `need` and at
 * most `max`. ret_host[rank] is the host. Returns the number of ranks; 0: there are fewer than `need` slots.
 *
 * If the whole gang fits on one host, takes the fullest such host, so that hosts with many free slots stay free for
 * large gangs. Otherwise takes the hosts with the most free slots first, so that the gang uses few hosts. Ranks of one
 * host are adjacent, because neighbours exchange first. */
int placement_choose(const struct placement_index *x, int need, int max,
                     bool (*usable)(const void *ctx, const struct executor *), const void *ctx,
                     struct executor **ret_host /* [max] */);

#endif
