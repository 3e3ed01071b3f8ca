/* A rank's private folder: the command's working directory, and the FIFO that it writes metrics to.
 *
 *     TMPDIR/trainyard-program-XXXXXX   the folder, with these entries:
 *       lock                            held while the rank runs
 *       metrics                         the FIFO
 *       error.json                      what torch.distributed.elastic reports about a failure; absent at first
 *       work                            the working directory, empty at first
 *       temporary                       TMPDIR of a command in a sandbox
 *
 * Only the user that runs the rank can enter the folder. A rank that is killed leaves its folder behind; the next
 * scratch_close of the same user removes every folder whose lock is free. A folder gets its name when it is locked. */
#ifndef EXECUTOR_PROGRAM_SCRATCH_H
#define EXECUTOR_PROGRAM_SCRATCH_H

#include "base/status.h"
#include "executor/worker/emit.h"

#include <limits.h>

struct scratch {
    char directory[PATH_MAX - 64], work[PATH_MAX], temporary[PATH_MAX], metrics[PATH_MAX], error_file[PATH_MAX];
    int lock;
    int fifo; /* for reading, non-blocking. It never ends, since this process also keeps it open for writing */
};

MUST_CHECK status_t scratch_open(struct scratch *s, struct err *e);
/* Removes the folder and what the command has left in it, and the folders of ranks that were killed. This may take
 * long: the emitter reports progress meanwhile; NULL: none. A scratch that was never opened has lock and fifo -1. */
void scratch_close(struct scratch *s, struct emitter *emitter);

#endif
