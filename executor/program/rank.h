/* One rank of a program, from its start command to the end of every process that it started. */
#ifndef EXECUTOR_PROGRAM_RANK_H
#define EXECUTOR_PROGRAM_RANK_H

#include "api/codec/frame.h"
#include "base/status.h"
#include "executor/program/redact.h"
#include "executor/program/scratch.h"
#include "executor/worker/emit.h"

#include <trainyard/v1/worker.pb-c.h>

struct program_end {
    Trainyard__V1__WorkerEnd__Cause cause;
    struct err why;
    int64_t step;           /* the highest step of a metric */
    struct scratch scratch; /* the caller closes it, after the end was sent: this may take long */
};

/* redactor: of the attempt's secrets, whose values in `start` are overwritten when the command has them. commands: the
 * pipe from the agent; the reader may already contain commands that arrived together with the first one. SIGTERM and
 * SIGCHLD are blocked. Returns when no process of the command is left. */
void program_run(const Trainyard__V1__WorkerStart *start, const struct redactor *redactor, int commands,
                 struct frame_reader *reader, struct emitter *emitter, struct program_end *end);

/* check.c: reports as CheckFindings what prevents the command from being started on this host. */
void program_check(const Trainyard__V1__WorkerCheck *check, struct emitter *emitter, struct program_end *end);

#endif
