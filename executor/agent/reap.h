/* Ends worker processes: the agent's own children, and the processes that an earlier agent left. */
#ifndef EXECUTOR_AGENT_REAP_H
#define EXECUTOR_AGENT_REAP_H

#include "base/status.h"
#include "executor/agent/core/exit_reason.h"

#include <sys/types.h>

/* The exit status of a child that has ended; does not wait. UNAVAILABLE: it still runs. */
MUST_CHECK status_t reap_process(pid_t pid, struct exit_status *ret, struct err *e);

/* Ends the process that had this pid and start time, by SIGTERM and five seconds later by SIGKILL, and waits until it
 * is gone. It need not be a child. OK if it is gone already, or if the pid belongs to another process now.
 * DEADLINE_EXCEEDED if it is still there timeout_ms after SIGKILL. */
MUST_CHECK status_t reap_stranger(pid_t pid, int64_t start_time, int timeout_ms, struct err *e);

#endif
