#include "service/controller/checkpoint_files.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "service/controller/launch.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cuts the last name off. */
static void parent_of(char *path) { *strrchr(path, '/') = '\0'; }

/* The folder that holds all of such a spec's jobs is there, and can be written to. */
static bool reached(const char *checkpoints, const Trainyard__V1__JobSpec *spec, int64_t job) {
    CLEANUP(freep) char *path = NULL;
    if (launch_directory(spec, checkpoints, job, 1, &path, NULL) != ST_OK)
        return false;
    parent_of(path);
    parent_of(path);
    return access(path, W_OK) == 0;
}

status_t checkpoint_files_remove(const char *checkpoints, const Trainyard__V1__JobSpec *spec,
                                 const struct store_checkpoint *row, struct err *e) {
    CLEANUP(freep) char *attempt = NULL;
    char wanted[PATH_MAX + 64];
    TRY(launch_directory(spec, checkpoints, row->job, row->attempt, &attempt, e));
    snprintf(wanted, sizeof wanted, "%s/step-%lld", attempt, (long long)row->step);
    if (strcmp(wanted, row->directory) != 0)
        return err_set(e, ST_FAILED_PRECONDITION, "checkpoint %lld is in '%s', but this controller named '%s'",
                       (long long)row->id, row->directory, wanted);
    if (access(attempt, W_OK) == 0) {
        TRY(dir_remove(row->directory, e));
        log_event(LOG_INFO, "checkpoint_deleted", "job", LOG_INT(row->job), "checkpoint", LOG_INT(row->id), "step",
                  LOG_INT(row->step), NULL);
        return ST_OK;
    }
    if (errno != ENOENT && errno != ENOTDIR)
        return err_errno(e, "write to '%s'", attempt);
    return reached(checkpoints, spec, row->job)
               ? ST_OK
               : err_set(e, ST_UNAVAILABLE, "the folder of its checkpoints is not in reach");
}

/* ---- the sweep ---- */

static bool is_ours(const char *name) {
    return strcmp(name, "profile") == 0 ||
           (strncmp(name, "step-", 5) == 0 && name[5] && name[5 + strspn(name + 5, "0123456789")] == '\0');
}

/* *ret_kept: so many things that are not ours. */
static status_t empty_attempt(const char *attempt, int *ret_kept, struct err *e) {
    char path[PATH_MAX + 300];
    struct dirent *entry;
    *ret_kept = 0;
    DIR *d = opendir(attempt);
    if (!d)
        return errno == ENOENT || errno == ENOTDIR ? ST_OK : err_errno(e, "read '%s'", attempt);
    status_t st = ST_OK;
    while (st == ST_OK && (errno = 0, entry = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s", attempt, entry->d_name);
        if (is_ours(entry->d_name))
            st = dir_remove(path, e);
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            ++*ret_kept;
    }
    if (st == ST_OK && errno != 0)
        st = err_errno(e, "read '%s'", attempt);
    closedir(d);
    return st;
}

static void log_kept(int64_t job, const char *folder, const char *reason) {
    log_event(LOG_WARN, "folder_kept", "job", LOG_INT(job), "folder", LOG_STR(folder), "reason", LOG_STR(reason), NULL);
}

static status_t sweep_attempt(int64_t job, const char *attempt, struct err *e) {
    int kept;
    struct err why;
    TRY(empty_attempt(attempt, &kept, e));
    if (kept > 0) {
        log_kept(job, attempt, "there is something in it that no worker wrote");
    } else if (rmdir(attempt) < 0 && errno != ENOENT && errno != ENOTDIR) {
        status_ignore(err_errno(&why, "remove it"));
        log_kept(job, attempt, why.msg);
    }
    return ST_OK;
}

status_t checkpoint_files_sweep(const char *checkpoints, const Trainyard__V1__JobSpec *spec, int64_t job, int attempts,
                                struct err *e) {
    CLEANUP(freep) char *path = NULL;
    for (int number = 1; number <= attempts; number++) {
        free(take_ptr(&path));
        TRY(launch_directory(spec, checkpoints, job, number, &path, e));
        TRY(sweep_attempt(job, path, e));
    }
    if (!path)
        return ST_OK;
    parent_of(path);
    if (!reached(checkpoints, spec, job))
        log_kept(job, path, "the folder of its checkpoints is not in reach");
    else
        rmdir(path);
    return ST_OK;
}
