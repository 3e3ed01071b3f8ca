/* Limits of this process's control group (cgroup v2). */
#ifndef BASE_CONTROL_GROUP_H
#define BASE_CONTROL_GROUP_H

#include <stdint.h>

#define CONTROL_GROUP_MEMBERSHIP "/proc/self/cgroup"
#define CONTROL_GROUP_ROOT       "/sys/fs/cgroup"

/* Parses the text of a group's file. Returns 0 if it is not a limit. */
typedef int64_t control_group_limit_fn(const char *text);

/* The smallest limit in `file` ("cpu.max") of a group and the groups above it. `membership`, a file like
 * /proc/self/cgroup, names the group below `root`, the folder where cgroup v2 is mounted. 0: no limit, or it cannot be
 * read. */
int64_t control_group_min(const char *membership, const char *root, const char *file, control_group_limit_fn *limit);

#endif
