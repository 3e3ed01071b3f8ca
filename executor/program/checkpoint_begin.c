#include "executor/program/checkpoint_begin.h"

#include "base/cluster_mark.h"
#include "executor/worker/job_roots.h"
#include "executor/worker/user.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the folder ---- */

/* Two services number their jobs alike, so that a rank neither reads nor writes checkpoints of another cluster. */
/* The folders above are those of all jobs. */
static status_t folder_close_to_others(int fd, const char *path, struct err *e) {
    struct stat st;
    if (!user_group_is_private() || fstat(fd, &st) < 0 || st.st_uid != geteuid())
        return ST_OK;
    return fchmod(fd, st.st_mode & 07770) < 0 ? err_errno(e, "close '%s' to other jobs", path) : ST_OK;
}

static status_t folder_make(const struct roots *roots, const Trainyard__V1__WorkerStart *start,
                            struct checkpoint_begin *ret, struct err *e) {
    const char *path = start->attempt->checkpoint_directory;
    char all[PATH_MAX], job[PATH_MAX];
    CLEANUP(closep) int fd = -1;
    TRY(cluster_mark_folder(path, 2, all, sizeof all, e));
    TRY(roots_make(roots, all, 0777, &fd, e));
    TRY(cluster_mark_folder(path, 1, job, sizeof job, e));
    TRY(cluster_mark_at(fd, all, start->cluster, CLUSTER_MARK_TAKE, &ret->taken, e));
    TRY(roots_make(roots, path, 0777, &ret->fd, e));
    TRY(roots_make(roots, job, 0777, &ret->job, e));
    TRY(folder_close_to_others(ret->job, job, e));
    TRY(folder_close_to_others(ret->fd, path, e));
    snprintf(ret->folder, sizeof ret->folder, "%s", path);
    return ST_OK;
}

static Trainyard__V1__WorkerEnd__Cause cause_of_folder(status_t st) {
    return st == ST_FAILED_PRECONDITION || st == ST_DATA_LOSS
               ? TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC /* another host sees the same folder */
               : TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_WRITE;
}

/* ---- the checkpoint to resume from ---- */

static status_t resume_verify(const struct roots *roots, const Trainyard__V1__WorkerStart *start,
                              const struct file_progress *progress, struct checkpoint_begin *ret, struct err *e) {
    const char *directory = start->attempt->resume_directory;
    CLEANUP(file_manifest_freep) struct file_manifest *m = NULL;
    char all[PATH_MAX];
    TRY(cluster_mark_folder(directory, 3, all, sizeof all, e));
    status_t st = cluster_mark(roots, all, start->cluster, CLUSTER_MARK_CHECK, NULL, e);
    if (st != ST_OK && st != ST_NOT_FOUND && st != ST_PERMISSION_DENIED) /* the manifest is not found then */
        return st;
    TRY(start->rank == 0 ? file_manifest_verify(roots, directory, progress, &m, e)
                         : file_manifest_read(roots, directory, &m, e));
    const int folder = (int)(strrchr(directory, '/') - directory);
    if (snprintf(ret->resume, sizeof ret->resume, "%.*s/%s", folder, directory, m->path) >= (int)sizeof ret->resume)
        return err_set(e, ST_DATA_LOSS, "the path in the manifest of '%.200s' is too long", directory);
    ret->resume_step = m->step;
    return ST_OK;
}

/* A checkpoint of another job is that of a fork: no older one can replace it. */
static status_t resume_fail(const Trainyard__V1__WorkerStart *start, status_t st, struct checkpoint_begin *ret,
                            struct err *e) {
    const bool bad = st == ST_DATA_LOSS;
    ret->cause = bad ? TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD
                     : TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE;
    if ((bad && start->attempt->forked) || st == ST_FAILED_PRECONDITION)
        ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC;
    return start->attempt->forked ? err_prefix(e, st, "the checkpoint that this job was forked from cannot be read: ")
                                  : st;
}

static status_t begin(const struct roots *roots, const Trainyard__V1__WorkerStart *start,
                      const struct file_progress *progress, struct checkpoint_begin *ret, struct err *e) {
    status_t st = ST_OK;
    if (*start->attempt->resume_directory) {
        st = resume_verify(roots, start, progress, ret, e);
        if (st != ST_OK)
            return st == ST_CANCELLED ? st : resume_fail(start, st, ret, e);
    }
    if (*start->attempt->checkpoint_directory) {
        st = folder_make(roots, start, ret, e);
        ret->cause = cause_of_folder(st);
    }
    return start->attempt->spec->program->checkpoints ? st : ST_OK;
}

status_t checkpoint_begin(const Trainyard__V1__WorkerStart *start, const struct file_progress *progress,
                          struct checkpoint_begin *ret, struct err *e) {
    struct job_roots roots;
    *ret = (struct checkpoint_begin){ .fd = -1, .job = -1, .cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL };
    job_roots_take(&(struct job_roots_given){ start->data_roots, start->n_data_roots, start->checkpoint_roots,
                                              start->n_checkpoint_roots, start->data_except, start->n_data_except },
                   &roots);
    status_t st = begin(&roots.checkpoints, start, progress, ret, e);
    job_roots_done(&roots);
    return st;
}
