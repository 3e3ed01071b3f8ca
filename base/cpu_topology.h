/* Which processors ("CPUs" of the kernel) a process may use, and which of them share a core or a NUMA node.
 *
 *     struct cpu cpus[CPUS_MAX];
 *     int n = cpu_topology_read(CPU_TOPOLOGY_ROOT, cpus);       // of this process's affinity mask
 *     int cores = cpu_topology_cores(cpus, n);
 *
 * Two CPUs of one core (SMT, "hyper-threads") compute products no faster than one. A CPU outside of the mask does not
 * exist for this process, so a core may have one CPU here and two on the host. If the system does not name the core of
 * a CPU, as in a container without /sys, the CPU counts as a core of its own on node 0. */
#ifndef BASE_CPU_TOPOLOGY_H
#define BASE_CPU_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#define CPU_TOPOLOGY_ROOT "/sys/devices/system"

enum { CPUS_MAX = 1024 };

struct cpu {
    int number; /* the kernel's */
    int core;   /* the lowest allowed CPU of the same core */
    int node;
};

/* A set of CPUs; all zeros: empty. */
struct cpu_mask {
    uint64_t bits[CPUS_MAX / 64];
};
void cpu_mask_add(struct cpu_mask *m, int number);
bool cpu_mask_has(const struct cpu_mask *m, int number);
int cpu_mask_count(const struct cpu_mask *m);

/* Fills in the CPUs that this process may use, in ascending order. Returns how many; 0: they cannot be read. */
int cpu_topology_read(const char *root, struct cpu ret[CPUS_MAX]);
/* The same for a given mask. */
int cpu_topology_of(const char *root, const struct cpu_mask *allowed, struct cpu ret[CPUS_MAX]);
int cpu_topology_cores(const struct cpu *cpus, int n);

#endif
