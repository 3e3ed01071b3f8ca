#include "base/cores.h"

#include "base/control_group.h"
#include "base/cpu_topology.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* "150000 100000" means one and a half cores, rounded up to 2; "max 100000" means no limit. */
static int64_t quota_cores(const char *text) {
    long long quota = 0, period = 0;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return 0;
    const long long cores = quota / period + (quota % period != 0);
    return cores < INT_MAX ? cores : 0;
}

int cores_of_quota(const char *membership, const char *root) {
    return (int)control_group_min(membership, root, "cpu.max", quota_cores);
}

int cores_allowed(void) {
    struct cpu cpus[CPUS_MAX];
    int n = cpu_topology_cores(cpus, cpu_topology_read(CPU_TOPOLOGY_ROOT, cpus));
    n = n > 0 ? n : (int)sysconf(_SC_NPROCESSORS_ONLN);
    const int quota = cores_of_quota(CONTROL_GROUP_MEMBERSHIP, CONTROL_GROUP_ROOT);
    n = quota > 0 && quota < n ? quota : n;
    return n > 1 ? n : 1;
}

int cores_per_rank(int cores, int ranks) { return ranks > 0 && cores / ranks > 1 ? cores / ranks : 1; }
