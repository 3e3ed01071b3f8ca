/* Starts a worker: a program that the options name, with the arguments that every worker gets. */
#ifndef EXECUTOR_AGENT_WORKER_LAUNCH_H
#define EXECUTOR_AGENT_WORKER_LAUNCH_H

#include "executor/agent/host.h"
#include "executor/agent/worker_process.h"

#define WORKER_LAUNCH_NO_PROGRAMS "this executor runs no programs of users: it was started without --allow-programs"

struct worker_launch {
    const Trainyard__V1__JobSpec *spec;
    int threads;
    struct spool_log *log;
    const char *device;
    int64_t job;          /* of which it is a rank; JOB_USER_REQUEST: of none */
    const char *group;    /* name of its control group, which no other process has */
    int64_t memory_bytes; /* limit of the memory of one rank; 0: only that of all ranks */
    int32_t n_ranks;      /* of which it starts the processes: its limits are those of so many ranks; 0 as 1 */
};

/* spec: the job's. If it has a program, trainyard-program is started, otherwise trainyard-worker; NULL: the latter. The
 * worker ends with this agent, whose pid is one of its arguments, and begins with `threads` threads. log: receives its
 * records; NULL: they are not spooled. device: as in spawn_options; NULL: none. Call it from the agent's main thread.
 * Errors: those of cgroup_open and worker_process_open; FAILED_PRECONDITION for a program that the options do not
 * allow. */
MUST_CHECK status_t worker_launch(const struct host *host, const struct worker_launch *what,
                                  const struct worker_process_owner *owner, struct worker_process **ret, struct err *e);

#endif
