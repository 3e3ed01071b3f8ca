/* The folder with the program's files, as the agent reports it to a rank. */
#ifndef EXECUTOR_PROGRAM_CODE_H
#define EXECUTOR_PROGRAM_CODE_H

#include "base/status.h"

#include <stdbool.h>
#include <trainyard/v1/worker.pb-c.h>

/* Zeroed: nothing has arrived. */
struct code {
    Trainyard__V1__WorkerCommand *command; /* code_ready; NULL: it has not arrived */
};

/* Owns the command from then on. A second one is ignored. */
void code_take(struct code *c, Trainyard__V1__WorkerCommand *command);
void code_done(struct code *c);

/* Whether the program has code that has not arrived. */
bool code_is_missing(const struct code *c, const Trainyard__V1__ProgramSpec *program);
/* FAILED_PRECONDITION with the agent's sentence, if there will be no code. */
MUST_CHECK status_t code_status(const struct code *c, struct err *e);
/* The folder; NULL: the program has none. */
const char *code_folder(const struct code *c);
/* Why a command does not start: because of the code, or because of the host. BAD_SPEC, which no host can help: the
 * command is a relative path, and the code has no such file, or one that is not executable. HOST_FAULT: anything else,
 * such as a missing interpreter, a TMPDIR without the right to execute, or too few processes. */
Trainyard__V1__WorkerEnd__Cause code_cause(const struct code *c, const Trainyard__V1__ProgramSpec *program);

#endif
