/* The Python environment of a program, or its image if a host must fetch or unpack it, as the agent reports it to a
 * rank. */
#ifndef EXECUTOR_PROGRAM_PYTHON_ENVIRONMENT_H
#define EXECUTOR_PROGRAM_PYTHON_ENVIRONMENT_H

#include "base/status.h"

#include <stdbool.h>
#include <trainyard/v1/worker.pb-c.h>

/* Zeroed: nothing has arrived. */
struct python_environment {
    Trainyard__V1__WorkerCommand *last; /* the last report; NULL: it has not arrived */
};

/* Owns the command, an EnvironmentReport, from then on. */
void python_environment_take(struct python_environment *p, Trainyard__V1__WorkerCommand *command);
void python_environment_done(struct python_environment *p);

/* Whether the program needs an environment that has not arrived. */
bool python_environment_is_missing(const struct python_environment *p, const Trainyard__V1__ProgramSpec *program);
/* FAILED_PRECONDITION with the agent's sentence, if there will be none. */
MUST_CHECK status_t python_environment_status(const struct python_environment *p, struct err *e);
/* The cause of that failure. */
Trainyard__V1__WorkerEnd__Cause python_environment_cause(const struct python_environment *p);
/* The environment's folder; NULL: the program has none. */
const char *python_environment_path(const struct python_environment *p);

#endif
