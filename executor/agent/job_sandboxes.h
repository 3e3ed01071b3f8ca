/* The sandbox of this host's jobs, as the options want it: what the host lacks for it, and the order for a worker. */
#ifndef EXECUTOR_AGENT_JOB_SANDBOXES_H
#define EXECUTOR_AGENT_JOB_SANDBOXES_H

#include "executor/agent/host.h"

#include <trainyard/v1/worker.pb-c.h>

/* Logs each thing that the host cannot enforce, and each writable root that is above something hidden, once.
 * With --sandbox require the former, and what the host's control groups cannot enforce, are an error,
 * FAILED_PRECONDITION, with one sentence that lists them. Nothing with --sandbox off. */
MUST_CHECK status_t job_sandboxes_begin(const struct host *host, struct err *e);

/* For the start, check or sample of a worker. NULL: no sandbox; otherwise `space`, which borrows from the options. */
Trainyard__V1__SandboxOrder *job_sandbox_order(const struct agent_options *options, Trainyard__V1__SandboxOrder *space);

#endif
