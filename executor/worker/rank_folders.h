/* The folders of a rank's checkpoints: whose they are, and that they exist. */
#ifndef EXECUTOR_WORKER_RANK_FOLDERS_H
#define EXECUTOR_WORKER_RANK_FOLDERS_H

#include "base/roots.h"
#include "executor/worker/emit.h"

#include <trainyard/v1/worker.pb-c.h>

/* Two services number their jobs alike, so that a rank neither reads nor overwrites the checkpoints of another cluster.
 * Takes a folder without an owner for the start's cluster: *ret_taken. */
MUST_CHECK status_t rank_folders_check(const Trainyard__V1__WorkerStart *start, const struct roots *checkpoints,
                                       bool *ret_taken, struct err *e);

/* The same, and makes the folder of the attempt, before a sandbox forbids that. Errors are left to the rank, which does
 * all of it again. True: the folder was taken. */
bool rank_folders_make(const Trainyard__V1__WorkerStart *start);

/* Reports as an event that the folder was taken. */
void rank_folders_report(const Trainyard__V1__WorkerStart *start, struct emitter *emitter);

#endif
