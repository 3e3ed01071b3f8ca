/* How the cores of a host are shared by the ranks that run on it: each rank gets the cores that are free.
 *
 * The ranks of an attempt get equal numbers of cores, since they step together. Attempts take turns, oldest first: in
 * each turn every rank of an attempt gets one core more, if enough cores are left for all of them, until no attempt can
 * take more. So an attempt that has the host to itself gets cores_per_rank(cores, ranks) for each rank, ranks that fill
 * all slots get cores / slots or more, and a rank always has at least one. A rank that wants no more than `max` leaves
 * the rest to the others. */
#ifndef EXECUTOR_AGENT_CORE_THREAD_SHARES_H
#define EXECUTOR_AGENT_CORE_THREAD_SHARES_H

#include <stddef.h>

struct thread_share {
    int ranks;   /* of an attempt, on this host; 0 is fine */
    int max;     /* the most cores that each of these ranks wants; 0: as many as there are */
    int threads; /* of each of these ranks */
};

/* Fills in `threads`. shares: oldest attempt first. */
void thread_shares_fill(int cores, struct thread_share *shares, size_t n);

#endif
