/* What an attempt does with its checkpoints before its command starts: the folder that $TRAINYARD_CHECKPOINTS names is
 * made and marked as the cluster's, and the checkpoint that $TRAINYARD_RESUME names is verified. */
#ifndef EXECUTOR_PROGRAM_CHECKPOINT_BEGIN_H
#define EXECUTOR_PROGRAM_CHECKPOINT_BEGIN_H

#include "executor/worker/file_manifest.h"

#include <limits.h>
#include <trainyard/v1/worker.pb-c.h>

struct checkpoint_begin {
    char folder[PATH_MAX]; /* "": the program can write no checkpoints */
    int fd;                /* of that folder; -1: none */
    int job;               /* the folder above it, of all attempts of the job; -1: none */
    char resume[PATH_MAX]; /* what the program loads; "": it begins anew */
    int64_t resume_step;
    bool taken;                            /* the directory was marked as this cluster's */
    Trainyard__V1__WorkerEnd__Cause cause; /* after a failure */
};

/* Rank 0 reads every byte of the checkpoint to resume from, and the other ranks only its manifest. A failure to make
 * the folder is one only if the spec has program.checkpoints: without it, *ret has no folder, and e the reason.
 * CANCELLED: progress->continues returned false. */
MUST_CHECK status_t checkpoint_begin(const Trainyard__V1__WorkerStart *start, const struct file_progress *progress,
                                     struct checkpoint_begin *ret, struct err *e);

#endif
