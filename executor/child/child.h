/* What all programs that an agent starts have in common: their arguments, two pipes, and a first command.
 *
 * The agent starts them with `--agent-pid PID`, commands on descriptor 3 and records on 4; api/codec/frame.h is the
 * format of both. A program arranges that it dies with its agent (PR_SET_PDEATHSIG, with the signal that suits it)
 * before it calls child_begin, which finds out whether the agent was already dead. */
#ifndef EXECUTOR_CHILD_CHILD_H
#define EXECUTOR_CHILD_CHILD_H

#include "api/codec/frame.h"
#include "base/status.h"

#include <stdbool.h>
#include <trainyard/v1/worker.pb-c.h>

enum { CHILD_COMMANDS_FD = 3, CHILD_RECORDS_FD = 4 };

struct child {
    const char *name;  /* of the program */
    const char *usage; /* the text of --help, which ends with a line feed */
    int orphaned;      /* the exit status if the agent has died */
};

/* Reads the arguments, and marks the pipes as not for the program's own children. Prints what the user of a terminal
 * needs. False: the process is to end with *ret_status. */
MUST_CHECK bool child_begin(const struct child *child, int argc, char **argv, int *ret_status);

/* Waits for the first command. The caller frees it with trainyard__v1__worker_command__free_unpacked.
 * ST_UNAVAILABLE: the agent has closed the pipe. */
MUST_CHECK status_t child_command_wait(struct frame_reader *reader, Trainyard__V1__WorkerCommand **ret, struct err *e);

#endif
