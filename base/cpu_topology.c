/* sysfs writes sets of CPUs as lists: "0-3,8,10-11". A CPU's siblings are in cpu/cpuN/topology/thread_siblings_list, a
 * node's CPUs in node/nodeN/cpulist. Nodes are tried by number up to the largest that a kernel has. */
#include "base/cpu_topology.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST_BYTES = 8192, NODES_MAX = 1024 };

void cpu_mask_add(struct cpu_mask *m, int number) {
    if (number >= 0 && number < CPUS_MAX)
        m->bits[number / 64] |= (uint64_t)1 << number % 64;
}

bool cpu_mask_has(const struct cpu_mask *m, int number) {
    return number >= 0 && number < CPUS_MAX && m->bits[number / 64] >> number % 64 & 1;
}

int cpu_mask_count(const struct cpu_mask *m) {
    int n = 0;
    for (int i = 0; i < CPUS_MAX / 64; i++)
        n += __builtin_popcountll(m->bits[i]);
    return n;
}

static void list_parse(const char *text, struct cpu_mask *ret) {
    for (const char *at = text; *at >= '0' && *at <= '9';) {
        char *end;
        const long first = strtol(at, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long i = first; i <= last && i < CPUS_MAX; i++)
            cpu_mask_add(ret, (int)i);
        at = *end == ',' ? end + 1 : end;
    }
}

static bool list_read(const char *path, struct cpu_mask *ret) {
    char text[LIST_BYTES];
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0)
        return false;
    text[n] = '\0';
    list_parse(text, ret);
    return true;
}

/* The lowest allowed sibling. */
static int core_of(const char *root, int number, const struct cpu_mask *allowed) {
    char path[512];
    struct cpu_mask siblings = { { 0 } };
    snprintf(path, sizeof path, "%s/cpu/cpu%d/topology/thread_siblings_list", root, number);
    if (!list_read(path, &siblings))
        return number;
    for (int i = 0; i < number; i++)
        if (cpu_mask_has(&siblings, i) && cpu_mask_has(allowed, i))
            return i;
    return number;
}

static void set_nodes(const char *root, struct cpu *cpus, int n) {
    int missing = 0;
    for (int node = 0; node < NODES_MAX && missing < 64; node++) {
        char path[512];
        struct cpu_mask of = { { 0 } };
        snprintf(path, sizeof path, "%s/node/node%d/cpulist", root, node);
        missing = list_read(path, &of) ? 0 : missing + 1;
        for (int i = 0; i < n; i++)
            if (cpu_mask_has(&of, cpus[i].number))
                cpus[i].node = node;
    }
}

int cpu_topology_of(const char *root, const struct cpu_mask *allowed, struct cpu ret[CPUS_MAX]) {
    int n = 0;
    for (int i = 0; i < CPUS_MAX; i++)
        if (cpu_mask_has(allowed, i))
            ret[n++] = (struct cpu){ .number = i, .core = core_of(root, i, allowed) };
    set_nodes(root, ret, n);
    return n;
}

int cpu_topology_read(const char *root, struct cpu ret[CPUS_MAX]) {
    cpu_set_t set;
    struct cpu_mask allowed = { { 0 } };
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int i = 0; i < CPUS_MAX && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            cpu_mask_add(&allowed, i);
    return cpu_topology_of(root, &allowed, ret);
}

int cpu_topology_cores(const struct cpu *cpus, int n) {
    int cores = 0;
    for (int i = 0; i < n; i++)
        cores += cpus[i].core == cpus[i].number;
    return cores;
}
