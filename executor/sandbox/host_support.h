/* What this host can enforce. */
#ifndef EXECUTOR_SANDBOX_HOST_SUPPORT_H
#define EXECUTOR_SANDBOX_HOST_SUPPORT_H

#include "executor/sandbox/landlock_rights.h"

#include <stdbool.h>
#include <stddef.h>

/* Whether the kernel loads filters of system calls for a process without privileges. */
bool host_has_seccomp(void);

/* The sentences, without a period, about what a kernel with this ABI of Landlock (0: none) and with or without seccomp
 * cannot enforce. A pure function; ret has HOST_LACKS_MAX elements. Returns their number. */
enum { HOST_LACKS_MAX = 4 };
size_t host_lacks(int abi, bool seccomp, const char *ret[HOST_LACKS_MAX]);

#endif
