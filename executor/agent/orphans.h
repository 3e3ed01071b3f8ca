/* Kills the processes that a killed worker leaves behind.
 *
 * A program's worker kills all that its command has started, unless the worker itself is killed. The agent is a
 * subreaper: the processes that such a worker leaves become children of the agent. Every child that is not a worker of
 * this agent is therefore an orphan.
 *
 * Runs on the agent's loop. One per process. */
#ifndef EXECUTOR_AGENT_ORPHANS_H
#define EXECUTOR_AGENT_ORPHANS_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/reactor.h"

#include <sys/types.h>

struct orphans;

/* From now on this process is a subreaper. */
MUST_CHECK status_t orphans_open(struct reactor *loop, struct orphans **ret, struct err *e);
struct orphans *orphans_close(struct orphans *o); /* NULL is fine; returns NULL */

/* A child of this process that is no orphan, from its start until it is reaped. o NULL: nothing happens. */
void orphans_add_worker(struct orphans *o, pid_t pid);
void orphans_remove_worker(struct orphans *o, pid_t pid);

/* A worker has died: kills and reaps every orphan, again and again until there is none. o NULL: nothing happens. */
void orphans_kill(struct orphans *o);

#endif
