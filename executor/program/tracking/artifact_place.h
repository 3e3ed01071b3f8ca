/* Where a rank's files are kept: artifacts/attempt-N/ in the job's folder, which all ranks and attempts share.
 *
 *     struct artifact_place p;                    artifact_place_init(&p, job, attempt, rank);
 *     TRY(artifact_place_begin(&p, temporary, &fd, e));  ... write to fd ...
 *     TRY(artifact_place_keep(&p, temporary, fd, "model/weights.bin", bytes, e));   // or artifact_place_drop
 *
 * Each function may block for as long as the job's file system and the other ranks of the job do. One thread. */
#ifndef EXECUTOR_PROGRAM_TRACKING_ARTIFACT_PLACE_H
#define EXECUTOR_PROGRAM_TRACKING_ARTIFACT_PLACE_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    ARTIFACTS_BYTES = 1 << 30, /* of all ranks and attempts */
    ARTIFACTS_MAX = 10000,
    ARTIFACT_TEMPORARY_BYTES = 48,
    ARTIFACT_FOLDER_BYTES = 48,
};

struct artifact_place {
    int job, attempt, rank; /* job: an open folder, borrowed */
    int all, own;           /* artifacts/ and attempt-N/ in it; -1: not made yet */
    int *older;             /* [n_older] earlier attempts that have a folder */
    size_t n_older;
    int64_t begun;
};

void artifact_place_init(struct artifact_place *p, int job, int attempt, int rank);
void artifact_place_done(struct artifact_place *p);

/* The folder of an attempt's files, below the job's folder. */
void artifact_folder(int attempt, char ret[ARTIFACT_FOLDER_BYTES]);

/* Makes an empty file of a new temporary name. The first call also removes what earlier attempts did not finish. */
MUST_CHECK status_t artifact_place_begin(struct artifact_place *p, char temporary[ARTIFACT_TEMPORARY_BYTES],
                                         int *ret_fd, struct err *e);
/* Counts the file, gives it its name, and makes both durable. The same file of an earlier attempt is removed.
 * RESOURCE_EXHAUSTED: the job would have more than ARTIFACTS_BYTES or ARTIFACTS_MAX. After an error the temporary file
 * is still there. */
MUST_CHECK status_t artifact_place_keep(struct artifact_place *p, const char *temporary, int fd, const char *path,
                                        int64_t bytes, struct err *e);
void artifact_place_drop(struct artifact_place *p, const char *temporary);

#endif
