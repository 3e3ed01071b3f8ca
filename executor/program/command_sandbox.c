#include "executor/program/command_sandbox.h"

#include "base/alloc.h"
#include "executor/worker/job_sandbox.h"

#include <stdlib.h>

status_t command_sandbox_open(const Trainyard__V1__WorkerStart *start, const struct scratch *scratch,
                              const struct program_paths *paths, struct sandbox **ret, struct err *e) {
    *ret = NULL;
    if (!start->sandbox)
        return ST_OK;
    CLEANUP(freep) struct job_sandbox *s = alloc_zeroed(1, sizeof *s);
    const struct job_roots_given given = { start->data_roots,         start->n_data_roots, start->checkpoint_roots,
                                           start->n_checkpoint_roots, start->data_except,  start->n_data_except };
    job_sandbox_init(s, &given, start->sandbox);
    if (paths->image >= 0) {
        s->policy.only_grants = true;
        job_sandbox_grant_data(s, &given);
        sandbox_grant(&s->policy, scratch->temporary, SANDBOX_WRITE); /* it is /tmp, too */
    }
    s->policy.abstract_sockets = s->policy.gpus && start->attempt->world_size > 1;
    s->policy.terminals = true;
    sandbox_grant(&s->policy, scratch->directory, SANDBOX_WRITE);
    sandbox_grant(&s->policy, paths->code, SANDBOX_READ);
    sandbox_grant(&s->policy, paths->python, SANDBOX_READ);
    /* The job's earlier attempts beside this one's folder. */
    job_sandbox_grant_above(s, start->attempt->checkpoint_directory, 1, SANDBOX_READ);
    sandbox_grant(&s->policy, paths->checkpoints, SANDBOX_WRITE);
    sandbox_grant(&s->policy, paths->resume, SANDBOX_READ);
    return sandbox_open(&s->policy, ret, e);
}
