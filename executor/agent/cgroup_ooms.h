/* How often the memory limit of a control group could not be kept. */
#ifndef EXECUTOR_AGENT_CGROUP_OOMS_H
#define EXECUTOR_AGENT_CGROUP_OOMS_H

#include <stdbool.h>
#include <stdint.h>

struct cgroup_ooms {
    bool unified;
    int events;    /* eventfd of cgroup v1; -1: none */
    int64_t count; /* of cgroup v1, until the last reading */
};

/* Begins to count. A kernel that offers no count counts 0. */
struct cgroup_ooms cgroup_ooms_open(const char *folder, bool unified);
void cgroup_ooms_close(struct cgroup_ooms *o);

/* cgroup v2: of the group's own limit, since the group was made. cgroup v1: of the limits of the group and of those
 * above it, since cgroup_ooms_open. To tell these apart, read the group below first. */
int64_t cgroup_ooms_read(struct cgroup_ooms *o, const char *folder);

#endif
