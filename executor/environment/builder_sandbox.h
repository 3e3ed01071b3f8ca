/* The sandbox of processes that build: that of a job without data and checkpoints of its own. They can write only to
 * the folder of the build. */
#ifndef EXECUTOR_ENVIRONMENT_BUILDER_SANDBOX_H
#define EXECUTOR_ENVIRONMENT_BUILDER_SANDBOX_H

#include "executor/sandbox/sandbox.h"

#include <trainyard/v1/worker.pb-c.h>

/* folder: of the build; NULL: nothing can be written. *ret is NULL if the order has no sandbox. Errors: those of
 * sandbox_open. */
MUST_CHECK status_t builder_sandbox_open(const Trainyard__V1__EnvironmentBuild *order, const char *folder,
                                         struct sandbox **ret, struct err *e);

#endif
