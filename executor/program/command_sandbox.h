/* The sandbox of a rank's command: the policy of docs/program.md, "What a program may do". */
#ifndef EXECUTOR_PROGRAM_COMMAND_SANDBOX_H
#define EXECUTOR_PROGRAM_COMMAND_SANDBOX_H

#include "executor/program/environment.h"
#include "executor/sandbox/sandbox.h"

/* *ret is NULL if the start orders none. Errors: those of sandbox_open. */
MUST_CHECK status_t command_sandbox_open(const Trainyard__V1__WorkerStart *start, const struct scratch *scratch,
                                         const struct program_paths *paths, struct sandbox **ret, struct err *e);

#endif
