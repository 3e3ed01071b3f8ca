/* How many cores this process may use, and how many of them a rank gets. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

/* Those of the process's affinity (taskset, cpuset), each once, however many processors (SMT) it has; but no more than
 * the CPU quota of its control group (cpu.max of cgroup v2, here and in the groups above) allows, rounded up. At least
 * 1. */
int cores_allowed(void);

/* The quota alone, rounded up to whole cores; parameters as control_group_min. 0: none, or it cannot be read. */
int cores_of_quota(const char *membership, const char *root);

/* The cores of each of n ranks that share all cores: the rule of `trainyard-train`, of a plan, and
 * of an executor (executor/agent/core/thread_shares.h). At least 1. */
int cores_per_rank(int cores, int ranks);

#endif
