#include "executor/agent/worker_launch.h"

#include <stdio.h>
#include <unistd.h>

status_t worker_launch(const struct host *host, const Trainyard__V1__JobSpec *spec, int threads, struct spool_log *log,
                       const char *device, const struct worker_process_owner *owner, struct worker_process **ret,
                       struct err *e) {
    if (spec && spec->program && !host->options->allow_programs)
        return err_set(e, ST_FAILED_PRECONDITION, WORKER_LAUNCH_NO_PROGRAMS);
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const struct agent_options *o = host->options;
    const char *const path = spec && spec->program ? o->program : o->worker;
    const char *const as_agent[] = { path, "--agent-pid", parent, NULL };
    const char *const as_user[] = { path, "--user", o->worker_user, "--agent-pid", parent, NULL };
    const struct worker_process_options options = {
        .loop = host->loop,
        .spool = host->spool,
        .log = log,
        .orphans = host->orphans,
        .spawn = { .program = path,
                   .argv = o->worker_user ? as_user : as_agent,
                   .threads = threads,
                   .device = device,
                   .library_path = o->library_path },
        .owner = *owner,
    };
    return worker_process_open(&options, ret, e);
}
