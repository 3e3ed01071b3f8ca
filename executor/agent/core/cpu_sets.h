/* Which CPUs each rank of a host runs on: whole cores, of one NUMA node if they fit there.
 *
 * Ranks are placed one after another, oldest attempt first. A rank takes its cores from the node that has the fewest
 * free cores among those that have enough; if none has, it takes what is free from the nodes with the most free cores.
 * Both CPUs of a core (SMT) go to the rank that has the core: it computes with one thread a core, and the other CPU
 * serves its loader and its communication. Cores that no rank gets are added to the ranks of their node. If there are
 * fewer free cores than a rank has threads, as while an attempt follows another, the rank runs on all CPUs. */
#ifndef EXECUTOR_AGENT_CORE_CPU_SETS_H
#define EXECUTOR_AGENT_CORE_CPU_SETS_H

#include "base/cpu_topology.h"

#include <stddef.h>

struct cpu_set_wish {
    int threads;         /* cores that the rank has */
    struct cpu_mask ret; /* its CPUs */
};

/* Fills in `ret` of each rank. cpus (n): those of the host. */
void cpu_sets_fill(const struct cpu *cpus, int n, struct cpu_set_wish *ranks, size_t n_ranks);

#endif
