#include "executor/agent/worker.h"

#include <stdio.h>
#include <unistd.h>

status_t worker_open(struct agent *agent, struct spool_log *log, const char *device, const struct child_owner *owner,
                     struct child **ret, struct err *e) {
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *argv[] = { agent->options->worker, "--agent-pid", parent, NULL };
    const struct child_options options = {
        .loop = agent->loop,
        .spool = agent->spool,
        .log = log,
        .spawn = { .program = agent->options->worker,
                   .argv = argv,
                   .threads = agent->inventory.threads_per_rank,
                   .device = device,
                   .library_path = agent->options->library_path },
        .owner = *owner,
    };
    return child_open(&options, ret, e);
}
