/* Removes the files of checkpoints. Only folders that this controller itself named
 * (<folder>/<job>/attempt-<n>/step-<s>) are removed, and only from directories that belong to this cluster or to none.
 * The first removal from a directory without a cluster marks it as this cluster's (base/cluster_mark.h).
 *
 * The path in a worker's report is compared with the path that this controller named. Folders are found below a root
 * through descriptors, and no symbolic link is followed, so that another user who can write beside the folders cannot
 * have a different folder removed. */
#ifndef SERVICE_CONTROLLER_CHECKPOINT_FILES_H
#define SERVICE_CONTROLLER_CHECKPOINT_FILES_H

#include "base/roots.h"
#include "base/status.h"
#include "service/controller/checkpoint_objects.h"
#include "service/store/checkpoint.h"

#include <trainyard/v1/spec.pb-c.h>

/* Where checkpoints may be. */
struct checkpoint_place {
    const char *directory; /* for jobs that name none; below a root, or a root itself */
    const char *cluster;   /* the cluster that must own the directories (base/cluster_mark.h); NULL: not checked */
    struct roots roots;
    const struct checkpoint_objects *objects; /* of jobs with checkpoint.store; NULL: none are removed */
};

/* The folder of an attempt's checkpoints and profile: DIR/<job>/attempt-<n>, where DIR is the spec's own directory, or
 * place->directory if the spec names none. With checkpoint.store it is STORE/<cluster>/<job>/attempt-<n>: a store has
 * no marks of clusters. free(*ret). */
MUST_CHECK status_t checkpoint_attempt_directory(const Trainyard__V1__JobSpec *spec,
                                                 const struct checkpoint_place *place, int64_t job, int attempt,
                                                 char **ret, struct err *e);

/* ST_OK only if the files are known to be gone: removed now, or missing while the folder that holds all jobs is
 * writable. UNAVAILABLE: that folder is unreachable. FAILED_PRECONDITION: this controller did not name the folder, or
 * the directory belongs to another cluster. PERMISSION_DENIED: the folder is below no root or behind a symbolic link.
 * With checkpoint.store as checkpoint_objects_remove. Otherwise the error of the file system. */
MUST_CHECK status_t checkpoint_files_remove(const struct checkpoint_place *place, const Trainyard__V1__JobSpec *spec,
                                            const struct store_checkpoint *row, struct err *e);

/* Removes what else a job's attempts left: profiles, steps without a row (their worker died while it wrote them), and
 * the folders of the attempts and of the job; for a program everything in the folders of its attempts. Other entries
 * are kept and logged. If the folder that holds all jobs is unreachable, everything is kept and logged. */
MUST_CHECK status_t checkpoint_files_sweep(const struct checkpoint_place *place, const Trainyard__V1__JobSpec *spec,
                                           int64_t job, int attempts, struct err *e);

#endif
