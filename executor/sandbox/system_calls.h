/* The system calls that a sandbox refuses: a filter for seccomp, made by libseccomp.
 *
 * Refused, with EPERM, are calls that no training program needs and that reach beyond the process: mounts and
 * namespaces, kernel modules and a new kernel, the kernel's keys, eBPF, performance counters, page faults of others,
 * clocks, swap, quotas, accounting, io_uring, files by handle, input for a terminal (TIOCSTI), sockets to a
 * hypervisor. The list is that of common container runtimes. clone3 fails with ENOSYS, because a filter cannot see its
 * arguments; the C library then calls clone. ptrace is not refused: Landlock limits it to the sandbox's own
 * processes. */
#ifndef EXECUTOR_SANDBOX_SYSTEM_CALLS_H
#define EXECUTOR_SANDBOX_SYSTEM_CALLS_H

#include "base/status.h"

struct sock_fprog;

/* ret->filter is allocated; the caller frees it. */
MUST_CHECK status_t system_calls_filter(struct sock_fprog *ret, struct err *e);

#endif
