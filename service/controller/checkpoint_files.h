/* The files of checkpoints. Only folders that this controller itself named (<checkpoints>/<job>/attempt-<n>/step-<s>)
 * are removed: a path comes from a worker's report, and is compared first. */
#ifndef SERVICE_CONTROLLER_CHECKPOINT_FILES_H
#define SERVICE_CONTROLLER_CHECKPOINT_FILES_H

#include "base/status.h"
#include "service/store/checkpoint.h"

#include <trainyard/v1/spec.pb-c.h>

/* ST_OK only when the files are known to be gone: removed now, or not there while the folder that holds all jobs is.
 * UNAVAILABLE while that folder is not in reach, FAILED_PRECONDITION for a folder that this controller did not name,
 * else what the file system answers. checkpoints: the directory of jobs that name none. */
MUST_CHECK status_t checkpoint_files_remove(const char *checkpoints, const Trainyard__V1__JobSpec *spec,
                                            const struct store_checkpoint *row, struct err *e);

/* What else a job's attempts left: profiles, steps that no row names since their worker died over them, and the folders
 * of the attempts and the job. Other things in those folders are kept and logged, and so is all of it where the folder
 * that holds all jobs is not in reach. */
MUST_CHECK status_t checkpoint_files_sweep(const char *checkpoints, const Trainyard__V1__JobSpec *spec, int64_t job,
                                           int attempts, struct err *e);

#endif
