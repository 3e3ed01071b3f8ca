/* The rights of this process beyond those of its user. */
#ifndef BASE_PRIVILEGES_H
#define BASE_PRIVILEGES_H

#include "base/status.h"

#include <stdint.h>

/* The capability CAP_X of <linux/capability.h>, for `keep`. */
#define PRIVILEGE(cap) (UINT64_C(1) << (cap))

/* For good: no capability but those of `keep` that the process has, none for the programs that it starts, and no way to
 * get any (no_new_privs). A parent-death signal stays. Call it before any thread starts. */
MUST_CHECK status_t privileges_drop(uint64_t keep, struct err *e);

/* The same with nothing but system calls, for a process between fork and exec: 0, or errno. */
int privileges_limit(uint64_t keep);

#endif
