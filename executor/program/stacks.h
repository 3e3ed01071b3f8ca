/* What the processes of a command do, as lines of the log "stacks": for a program that makes no progress.
 *
 *   each process   its command line; of each thread its state, the function of the kernel that it waits in, the number
 *                  of its system call, and the kernel's stack if this process may read it
 *   then, of each process that handles SIGABRT, as Python with PYTHONFAULTHANDLER=1 does: what it prints on stderr when
 *                  it gets that signal, which are the stacks of all its threads. The process ends by it
 * With a GPU, NCCL's own report of all ranks comes first (nccl_status.h).
 *
 * Parents come before their children, so that no process ends because its child has ended. */
#ifndef EXECUTOR_PROGRAM_STACKS_H
#define EXECUTOR_PROGRAM_STACKS_H

#include "executor/program/output.h"
#include "executor/worker/emit.h"

/* Takes at most four seconds, and logs at most some 600 lines. From now on stderr of the command goes to the log
 * "stacks". nccl_address: of the command's NCCL; "": it is not asked. */
void stacks_collect(struct output *output, struct emitter *emitter, const char *nccl_address);

#endif
