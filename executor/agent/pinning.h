/* Binds the threads of a process to CPUs. */
#ifndef EXECUTOR_AGENT_PINNING_H
#define EXECUTOR_AGENT_PINNING_H

#include "base/cpu_topology.h"
#include "base/status.h"

#include <sys/types.h>

/* All threads that the process has, and, since a thread inherits its creator's CPUs, those that it starts later. An
 * empty mask changes nothing, and neither does a process that has ended. PERMISSION_DENIED: the process belongs to
 * another user, and this one is not privileged. */
MUST_CHECK status_t process_pin(pid_t pid, const struct cpu_mask *cpus, struct err *e);

#endif
