/* The agent's workers: the program that its options name, with what all of them are started with. */
#ifndef EXECUTOR_AGENT_WORKER_H
#define EXECUTOR_AGENT_WORKER_H

#include "executor/agent/agent.h"
#include "executor/agent/child.h"

/* It ends with this agent, whose pid it is told. log and device (as in spawn_options): NULL for none. From the agent's
 * main thread. Errors: child_open's. */
MUST_CHECK status_t worker_open(struct agent *agent, struct spool_log *log, const char *device,
                                const struct child_owner *owner, struct child **ret, struct err *e);

#endif
