#include "executor/agent/worker_launch.h"

#include "executor/agent/job_user.h"

#include <stdio.h>
#include <unistd.h>

static int64_t times(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

status_t worker_launch(const struct host *host, const struct worker_launch *what,
                       const struct worker_process_owner *owner, struct worker_process **ret, struct err *e) {
    const struct agent_options *o = host->options;
    const bool program = what->spec && what->spec->program;
    if (program && !o->allow_programs)
        return err_set(e, ST_FAILED_PRECONDITION, WORKER_LAUNCH_NO_PROGRAMS);
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *const path = program ? o->program : o->worker;
    const char *const as_agent[] = { path, "--agent-pid", parent, NULL };
    char ids[JOB_USER_TEXT_BYTES] = "";
    const bool own = job_user_is_own(o);
    if (own)
        job_user_text(o, what->job, what->device, ids);
    const char *const as_user[] = {
        path, own ? "--job-user" : "--user", own ? ids : o->worker_user, "--agent-pid", parent, NULL
    };
    struct worker_process_options options = {
        .loop = host->loop,
        .spool = host->spool,
        .log = what->log,
        .orphans = host->orphans,
        .spawn = { .program = path,
                   .argv = own || o->worker_user ? as_user : as_agent,
                   .threads = what->threads,
                   .device = what->device,
                   .library_path = o->library_path },
        .owner = *owner,
    };
    const int32_t n_ranks = what->n_ranks > 1 ? what->n_ranks : 1;
    const struct cgroup_limits limits = { .memory_bytes = times(what->memory_bytes, n_ranks),
                                          .processes_max = times(o->processes_max, n_ranks) };
    TRY(cgroup_open(host->cgroups, what->group, &limits, &options.cgroup, e));
    status_t st = worker_process_open(&options, ret, e);
    if (st != ST_OK)
        cgroup_close(options.cgroup);
    return st;
}
