/* Events of a rank's checkpoints (checkpoints.h) as records for the agent. */
#ifndef EXECUTOR_PROGRAM_CHECKPOINT_REPORT_H
#define EXECUTOR_PROGRAM_CHECKPOINT_REPORT_H

#include "executor/program/checkpoints.h"
#include "executor/worker/emit.h"

/* A stored checkpoint becomes a ShardReport and a line of the job's log, a notice becomes an event. Nothing for others.
 * The metrics that the program wrote before the checkpoint must have been put: a checkpoint is COMMITTED only after
 * them. */
void checkpoint_report(struct emitter *emitter, const struct checkpoints *c, const struct checkpoints_event *event);

#endif
