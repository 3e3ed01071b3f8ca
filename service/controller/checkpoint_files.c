/* Deletes the files of checkpoints, and later what else a job's attempts left.
 *
 * The path of a checkpoint comes from a worker's report, so that it is not trusted. folders_open opens the folder that
 * holds all jobs (below a root), in it the job's folder, and in that the attempt's folder, each through the descriptor
 * of the folder above. checkpoint_files_remove removes step-<s> through the attempt's descriptor, after it has compared
 * the reported path with the path that this controller would name.
 *
 * Before anything is removed from a directory without a cluster's mark, directory_take marks it as this cluster's. A
 * missing folder counts as deleted only if the folder that holds all jobs is writable, because a file system that is
 * not mounted looks the same.
 *
 * checkpoint_files_sweep removes from each attempt's folder what workers write (profile, step-<s>), or everything if
 * the job had a program, whose folder it was. The folder `artifacts` of the job is removed with them. Then it removes
 * the folders that are empty. Other entries keep their folder, which is logged. */
#include "service/controller/checkpoint_files.h"

#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/beneath.h"
#include "base/cleanup.h"
#include "base/cluster_mark.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

status_t checkpoint_attempt_directory(const Trainyard__V1__JobSpec *spec, const struct checkpoint_place *place,
                                      int64_t job, int attempt, char **ret, struct err *e) {
    char own[PATH_MAX];
    const char *base = place->directory;
    if (spec_checkpoints_in_store(spec)) {
        *ret = alloc_format("%s/%s/%lld/attempt-%d", spec->checkpoint->store, place->cluster ? place->cluster : "none",
                            (long long)job, attempt);
        return ST_OK;
    }
    if (spec->checkpoint && spec->checkpoint->directory && spec->checkpoint->directory[0]) {
        TRY(spec_uri_path(spec->checkpoint->directory, own, sizeof own, e));
        base = own;
    }
    *ret = alloc_format("%s/%lld/attempt-%d", base, (long long)job, attempt);
    return ST_OK;
}

/* The open folders of an attempt. -1: the folder does not exist. */
struct folders {
    char *attempt_path;
    int all, job, attempt; /* descriptors: the folder that holds all jobs; the job's; the attempt's */
};

static void folders_done(struct folders *f) {
    closep(&f->all);
    closep(&f->job);
    closep(&f->attempt);
    free(f->attempt_path);
}

static status_t open_within(int folder, const char *name, const char *path, int *ret, struct err *e) {
    status_t st = folder < 0 ? ST_OK : beneath_open(folder, name, O_RDONLY | O_DIRECTORY, path, ret, e);
    return st == ST_NOT_FOUND ? ST_OK : st;
}

/* A directory that belongs to no cluster yet may hold another service's jobs with the same numbers. Before anything is
 * removed from the directory, it is marked as this cluster's. Only one of the services can succeed in that. */
static status_t directory_take(const struct checkpoint_place *place, int all, const char *path, struct err *e) {
    bool taken;
    TRY(cluster_mark_at(all, path, place->cluster ? place->cluster : "", CLUSTER_MARK_TAKE, &taken, e));
    if (taken)
        log_event(LOG_INFO, "checkpoint_directory_taken", "directory", LOG_STR(path), "cluster",
                  LOG_STR(place->cluster), NULL);
    return ST_OK;
}

static status_t folders_open(const struct checkpoint_place *place, const Trainyard__V1__JobSpec *spec, int64_t job,
                             int attempt, struct folders *ret, struct err *e) {
    char all[PATH_MAX], name[32];
    *ret = (struct folders){ .all = -1, .job = -1, .attempt = -1 };
    TRY(checkpoint_attempt_directory(spec, place, job, attempt, &ret->attempt_path, e));
    const char *end = strrchr(ret->attempt_path, '/');
    end = memrchr(ret->attempt_path, '/', (size_t)(end - ret->attempt_path));
    if (snprintf(all, sizeof all, "%.*s", (int)(end - ret->attempt_path), ret->attempt_path) >= (int)sizeof all)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.80s...' is too long", ret->attempt_path);
    status_t st = roots_open(&place->roots, all, O_RDONLY | O_DIRECTORY, &ret->all, e);
    if (st != ST_OK)
        return st == ST_NOT_FOUND ? ST_OK : st;
    TRY(cluster_mark_at(ret->all, all, place->cluster ? place->cluster : "", CLUSTER_MARK_CHECK, NULL, e));
    snprintf(name, sizeof name, "%lld", (long long)job);
    TRY(open_within(ret->all, name, ret->attempt_path, &ret->job, e));
    if (ret->job >= 0)
        TRY(directory_take(place, ret->all, all, e));
    return open_within(ret->job, strrchr(ret->attempt_path, '/') + 1, ret->attempt_path, &ret->attempt, e);
}

static bool writable(int folder) { return folder >= 0 && faccessat(folder, ".", W_OK, 0) == 0; }

/* A folder with everything in it. A program may have made a file instead, or a symbolic link, which is removed itself.
 * Below a model's folder a link is an error: someone has moved the checkpoint. */
static status_t remove_entry(int folder, bool program, const char *name, const char *path, struct err *e) {
    struct stat st;
    if (program && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
        return unlinkat(folder, name, 0) == 0 || errno == ENOENT ? ST_OK : err_errno(e, "remove '%s'", path);
    return beneath_remove(folder, name, path, e);
}

/* A program's checkpoint has its manifest beside it. */
static status_t remove_manifest(const struct folders *f, const struct store_checkpoint *row, struct err *e) {
    char name[64];
    snprintf(name, sizeof name, "step-%lld.json", (long long)row->step);
    return unlinkat(f->attempt, name, 0) == 0 || errno == ENOENT ? ST_OK
                                                                 : err_errno(e, "remove '%s.json'", row->directory);
}

static status_t remove_step(const struct folders *f, bool program, const struct store_checkpoint *row, struct err *e) {
    if (f->attempt < 0)
        return writable(f->all) ? ST_OK : err_set(e, ST_UNAVAILABLE, "the folder of its checkpoints is not in reach");
    if (!writable(f->attempt))
        return err_errno(e, "write to '%s'", f->attempt_path);
    TRY(remove_entry(f->attempt, program, strrchr(row->directory, '/') + 1, row->directory, e));
    if (program)
        TRY(remove_manifest(f, row, e));
    log_event(LOG_INFO, "checkpoint_deleted", "job", LOG_INT(row->job), "checkpoint", LOG_INT(row->id), "step",
              LOG_INT(row->step), NULL);
    return ST_OK;
}

/* The folder that this controller named. */
static status_t check_named(const char *attempt_path, const struct store_checkpoint *row, struct err *e) {
    CLEANUP(freep) char *wanted = alloc_format("%s/step-%lld", attempt_path, (long long)row->step);
    return strcmp(wanted, row->directory) == 0
               ? ST_OK
               : err_set(e, ST_FAILED_PRECONDITION, "checkpoint %lld is in '%s', but this controller named '%s'",
                         (long long)row->id, row->directory, wanted);
}

static status_t remove_objects(const struct checkpoint_place *place, const Trainyard__V1__JobSpec *spec,
                               const struct store_checkpoint *row, struct err *e) {
    CLEANUP(freep) char *attempt = NULL;
    CLEANUP(freep) char *pattern = alloc_format("%s/*", row->directory);
    TRY(checkpoint_attempt_directory(spec, place, row->job, row->attempt, &attempt, e));
    TRY(check_named(attempt, row, e));
    TRY(checkpoint_objects_remove(place->objects, spec, pattern, e));
    log_event(LOG_INFO, "checkpoint_deleted", "job", LOG_INT(row->job), "checkpoint", LOG_INT(row->id), "step",
              LOG_INT(row->step), NULL);
    return ST_OK;
}

status_t checkpoint_files_remove(const struct checkpoint_place *place, const Trainyard__V1__JobSpec *spec,
                                 const struct store_checkpoint *row, struct err *e) {
    CLEANUP(folders_done) struct folders f = { .all = -1, .job = -1, .attempt = -1 };
    if (spec_checkpoints_in_store(spec))
        return remove_objects(place, spec, row, e);
    TRY(folders_open(place, spec, row->job, row->attempt, &f, e));
    TRY(check_named(f.attempt_path, row, e));
    return remove_step(&f, spec_is_program(spec), row, e);
}

/* ---- the sweep ---- */

static bool is_ours(const char *name) {
    return strcmp(name, "profile") == 0 ||
           (strncmp(name, "step-", 5) == 0 && name[5] && name[5 + strspn(name + 5, "0123456789")] == '\0');
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

/* Removes what workers write; of a program's job everything, since the folder is the program's. *ret_kept: the number
 * of other entries, which stay. */
static status_t empty_attempt(const struct folders *f, bool program, int *ret_kept, struct err *e) {
    struct dirent *entry;
    *ret_kept = 0;
    int fd = fcntl(f->attempt, F_DUPFD_CLOEXEC, 0);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        closep(&fd);
        return err_errno(e, "read '%s'", f->attempt_path);
    }
    status_t st = ST_OK;
    while (st == ST_OK && (errno = 0, entry = readdir(d))) {
        if (is_dots(entry->d_name))
            continue;
        if (program || is_ours(entry->d_name))
            st = remove_entry(f->attempt, program, entry->d_name, f->attempt_path, e);
        else
            ++*ret_kept;
    }
    if (st == ST_OK && errno != 0)
        st = err_errno(e, "read '%s'", f->attempt_path);
    closedir(d);
    return st;
}

static void log_kept(int64_t job, const char *folder, const char *reason) {
    log_event(LOG_WARN, "folder_kept", "job", LOG_INT(job), "folder", LOG_STR(folder), "reason", LOG_STR(reason), NULL);
}

static status_t sweep_attempt(int64_t job, bool program, const struct folders *f, struct err *e) {
    int kept;
    struct err why;
    if (f->attempt < 0)
        return ST_OK;
    TRY(empty_attempt(f, program, &kept, e));
    if (kept > 0) {
        log_kept(job, f->attempt_path, "there is something in it that no worker wrote");
    } else if (unlinkat(f->job, strrchr(f->attempt_path, '/') + 1, AT_REMOVEDIR) < 0 && errno != ENOENT) {
        status_ignore(err_errno(&why, "remove it"));
        log_kept(job, f->attempt_path, why.msg);
    }
    return ST_OK;
}

static void sweep_job(int64_t job, const struct folders *f) {
    char name[32];
    struct err why;
    snprintf(name, sizeof name, "%lld", (long long)job);
    if (f->job >= 0 && beneath_remove(f->job, "artifacts", "artifacts", &why) != ST_OK)
        log_kept(job, f->attempt_path, why.msg);
    if (!writable(f->all))
        log_kept(job, f->attempt_path, "the folder of its checkpoints is not in reach");
    else
        unlinkat(f->all, name, AT_REMOVEDIR);
}

/* All steps of all attempts. */
static status_t sweep_objects(const struct checkpoint_place *place, const Trainyard__V1__JobSpec *spec, int64_t job,
                              struct err *e) {
    CLEANUP(freep) char *first = NULL;
    TRY(checkpoint_attempt_directory(spec, place, job, 1, &first, e));
    first[strlen(first) - 1] = '\0'; /* without the number */
    CLEANUP(freep) char *pattern = alloc_format("%s*/step-*/*", first);
    return checkpoint_objects_remove(place->objects, spec, pattern, e);
}

status_t checkpoint_files_sweep(const struct checkpoint_place *place, const Trainyard__V1__JobSpec *spec, int64_t job,
                                int attempts, struct err *e) {
    if (spec_checkpoints_in_store(spec))
        return attempts > 0 ? sweep_objects(place, spec, job, e) : ST_OK;
    for (int number = 1; number <= attempts; number++) {
        CLEANUP(folders_done) struct folders f;
        TRY(folders_open(place, spec, job, number, &f, e));
        TRY(sweep_attempt(job, spec_is_program(spec), &f, e));
        if (number == attempts)
            sweep_job(job, &f);
    }
    return ST_OK;
}
