/* cgroup v2 counts in memory.events.local (Linux 5.2; before, memory.events). cgroup v1 has no count, and its counter
 * of refused charges (failcnt) also counts those for the page cache, which the kernel then drops. But it signals an
 * eventfd each time that the limit of the group, or of one above it, could not be kept: the groups above first. */
#include "executor/agent/cgroup_ooms.h"

#include "base/cleanup.h"
#include "executor/agent/cgroup_folder.h"
#include "executor/agent/cgroup_places.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct cgroup_ooms cgroup_ooms_open(const char *folder, bool unified) {
    char path[CGROUP_PATH_BYTES + 32], text[48];
    if (unified)
        return (struct cgroup_ooms){ .unified = true, .events = -1 };
    snprintf(path, sizeof path, "%.*s/memory.oom_control", CGROUP_PATH_BYTES, folder);
    CLEANUP(closep) int control = open(path, O_RDONLY | O_CLOEXEC);
    struct cgroup_ooms ret = { .events = control < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    snprintf(text, sizeof text, "%d %d", ret.events, control);
    if (ret.events >= 0 && cgroup_folder_write(folder, "cgroup.event_control", text, NULL) != ST_OK)
        cgroup_ooms_close(&ret);
    return ret;
}

void cgroup_ooms_close(struct cgroup_ooms *o) {
    if (o->events >= 0)
        close(o->events);
    o->events = -1;
}

int64_t cgroup_ooms_read(struct cgroup_ooms *o, const char *folder) {
    eventfd_t n;
    if (o->unified) {
        const char *file = cgroup_folder_has(folder, "memory.events.local") ? "memory.events.local" : "memory.events";
        const int64_t count = cgroup_folder_number(folder, file, "oom");
        return count > 0 ? count : 0;
    }
    if (o->events >= 0 && eventfd_read(o->events, &n) == 0)
        o->count += (int64_t)n;
    return o->count;
}
