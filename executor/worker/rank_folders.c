#include "executor/worker/rank_folders.h"

#include "base/cleanup.h"
#include "base/cluster_mark.h"
#include "executor/worker/job_roots.h"

#include <limits.h>
#include <stdio.h>

status_t rank_folders_check(const Trainyard__V1__WorkerStart *start, const struct roots *checkpoints, bool *ret_taken,
                            struct err *e) {
    const bool local = *start->checkpoint_uri != '\0'; /* no other cluster has the folder of this host */
    const char *const read[] = { start->resume_fetched ? "" : start->attempt->resume_directory,
                                 start->weights_fetched ? "" : start->attempt->init_directory };
    char folder[PATH_MAX];
    *ret_taken = false;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        if (!*read[i])
            continue;
        TRY(cluster_mark_folder(read[i], 3, folder, sizeof folder, e));
        status_t st = cluster_mark(checkpoints, folder, start->cluster, CLUSTER_MARK_CHECK, NULL, e);
        if (st != ST_OK && st != ST_NOT_FOUND && st != ST_PERMISSION_DENIED) /* who reads it says what is missing */
            return st;
    }
    if (local || !*start->attempt->checkpoint_directory || !*start->cluster)
        return ST_OK;
    CLEANUP(closep) int fd = -1;
    TRY(cluster_mark_folder(start->attempt->checkpoint_directory, 2, folder, sizeof folder, e));
    TRY(roots_make(checkpoints, folder, 0777, &fd, e));
    return cluster_mark_at(fd, folder, start->cluster, CLUSTER_MARK_TAKE, ret_taken, e);
}

bool rank_folders_make(const Trainyard__V1__WorkerStart *start) {
    struct job_roots roots;
    bool taken = false;
    CLEANUP(closep) int folder = -1;
    if (!start->attempt)
        return false;
    job_roots_take(&(struct job_roots_given){ start->data_roots, start->n_data_roots, start->checkpoint_roots,
                                              start->n_checkpoint_roots, start->data_except, start->n_data_except },
                   &roots);
    job_roots_add_checkpoints(&roots, start->checkpoint_local);
    if (rank_folders_check(start, &roots.checkpoints, &taken, NULL) == ST_OK && *start->attempt->checkpoint_directory)
        status_ignore(roots_make(&roots.checkpoints, start->attempt->checkpoint_directory, 0777, &folder, NULL));
    job_roots_done(&roots);
    return taken;
}

void rank_folders_report(const Trainyard__V1__WorkerStart *start, struct emitter *emitter) {
    char folder[PATH_MAX], said[PATH_MAX + 100];
    if (cluster_mark_folder(start->attempt->checkpoint_directory, 2, folder, sizeof folder, NULL) != ST_OK)
        return;
    snprintf(said, sizeof said, "the checkpoint directory '%s' belongs to cluster %s from now on", folder,
             start->cluster);
    Trainyard__V1__WorkerNotice notice = TRAINYARD__V1__WORKER_NOTICE__INIT;
    notice.kind = (char *)(uintptr_t) "checkpoint_directory_taken";
    notice.message = said;
    emitter_put(emitter, WORKER_RECORD(NOTICE, notice, &notice));
    emitter_log(emitter, "step 0: %s: %s", notice.kind, said);
}
