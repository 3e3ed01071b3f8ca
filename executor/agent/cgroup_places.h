/* Where this process's control groups are: for each controller the folder of the group that this process is in, in
 * cgroup v2 or in a hierarchy of cgroup v1. Hosts with cgroup v1, or with both, still exist: older distributions, and
 * many virtual machines that run containers. */
#ifndef EXECUTOR_AGENT_CGROUP_PLACES_H
#define EXECUTOR_AGENT_CGROUP_PLACES_H

#include <stdbool.h>
#include <stddef.h>

enum cgroup_controller { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_CONTROLLERS };
enum { CGROUP_PATH_BYTES = 1024 };

struct cgroup_place {
    char own[CGROUP_PATH_BYTES]; /* the folder of this process's group; "": no such controller is mounted */
    size_t n_mount;              /* length of the part of `own` that is the mount point */
    bool unified;                /* cgroup v2 */
};

/* "memory", "pids", "cpu" */
const char *cgroup_controller_name(enum cgroup_controller c);

/* mountinfo and membership: files like /proc/self/mountinfo and /proc/self/cgroup. A controller of cgroup v2 is
 * preferred; whether it is one is read from `cgroup.controllers` of the group. Paths with spaces are not found. */
void cgroup_places_find(const char *mountinfo, const char *membership, struct cgroup_place ret[CGROUP_CONTROLLERS]);

#endif
