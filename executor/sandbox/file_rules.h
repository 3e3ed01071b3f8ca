/* The files of a policy as a ruleset of Landlock. Private to this folder. */
#ifndef EXECUTOR_SANDBOX_FILE_RULES_H
#define EXECUTOR_SANDBOX_FILE_RULES_H

#include "executor/sandbox/sandbox.h"

/* ret: the ruleset, for landlock_restrict_self; close-on-exec. abi: at least 1. */
MUST_CHECK status_t file_rules_open(const struct sandbox_policy *policy, int abi, int *ret, struct err *e);

#endif
