#include "executor/agent/pinning.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* A thread that was not bound yet may have started one that this pass over the folder did not list. */
enum { PASSES = 8 };

static void closedirp(DIR **d) {
    if (*d)
        closedir(*d);
}

static cpu_set_t set_of(const struct cpu_mask *m) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < CPUS_MAX && i < CPU_SETSIZE; i++)
        if (cpu_mask_has(m, i))
            CPU_SET(i, &set);
    return set;
}

/* *ret: threads that had other CPUs. */
static status_t pin_threads(pid_t pid, const cpu_set_t *set, int *ret, struct err *e) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    CLEANUP(closedirp) DIR *dir = opendir(path);
    *ret = 0;
    if (!dir)
        return errno == ENOENT ? ST_OK : err_errno(e, "list the threads of process %d", (int)pid);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        const pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        cpu_set_t now;
        if (thread <= 0 || (sched_getaffinity(thread, sizeof now, &now) == 0 && CPU_EQUAL(&now, set)))
            continue;
        if (sched_setaffinity(thread, sizeof *set, set) != 0 && errno != ESRCH)
            return err_errno(e, "bind process %d to its CPUs", (int)pid);
        ++*ret;
    }
    return ST_OK;
}

status_t process_pin(pid_t pid, const struct cpu_mask *cpus, struct err *e) {
    const cpu_set_t set = set_of(cpus);
    if (cpu_mask_count(cpus) == 0)
        return ST_OK;
    for (int pass = 0, changed = 1; changed > 0 && pass < PASSES; pass++)
        TRY(pin_threads(pid, &set, &changed, e));
    return ST_OK;
}
