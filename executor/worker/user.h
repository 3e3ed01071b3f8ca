/* A worker that is another user than its agent: it becomes that user before it does anything else. */
#ifndef EXECUTOR_WORKER_USER_H
#define EXECUTOR_WORKER_USER_H

#include "base/status.h"

#include <stdbool.h>

/* For good: user, groups as the system's databases have them, no capability, and no way to get any (no_new_privs).
 * Clears the parent-death signal. Call it before any thread starts. PERMISSION_DENIED without CAP_SETUID and
 * CAP_SETGID, NOT_FOUND for an unknown user; INVALID_ARGUMENT for root. */
MUST_CHECK status_t user_become(const char *name, struct err *e);

/* A user of a range, whom no database of the host names. `ids`: "UID:GID[:GID]...": the user, its group, and groups for
 * devices. Files that it makes are closed to users of other groups, folders can only be passed through. With
 * private_group the process keeps a group of the user's own number beside GID, which user_group_leave changes to. The
 * rest as user_become. */
MUST_CHECK status_t user_become_ids(const char *ids, bool private_group, struct err *e);

/* If the first option is --user NAME or --job-user IDS, becomes that user and takes the option out of the arguments. */
MUST_CHECK status_t user_option_take(int *argc, char **argv, bool private_group, struct err *e);

/* Whether this process has a private group beside its group. */
bool user_group_is_private(void);
/* Leaves the group GID for good and closes all files made from now on to other users and groups; nothing without a
 * private group. Takes no lock: it may be called between fork and exec. False, with errno: not done. */
bool user_group_leave(void);

#endif
