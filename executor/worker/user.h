/* A worker that is another user than its agent: it becomes that user before it does anything else. */
#ifndef EXECUTOR_WORKER_USER_H
#define EXECUTOR_WORKER_USER_H

#include "base/status.h"

/* For good: user, groups as the system's databases have them, no capability, and no way to get any (no_new_privs).
 * Clears the parent-death signal. Call it before any thread starts. PERMISSION_DENIED without CAP_SETUID and
 * CAP_SETGID, NOT_FOUND for an unknown user; INVALID_ARGUMENT for root. */
MUST_CHECK status_t user_become(const char *name, struct err *e);

/* If the first option is --user NAME, becomes that user and takes the option out of the arguments. */
MUST_CHECK status_t user_option_take(int *argc, char **argv, struct err *e);

#endif
