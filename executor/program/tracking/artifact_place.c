/* A process of an older attempt may still run when a newer attempt has begun. Each attempt therefore writes in a folder
 * of its own, attempt-N: an older process changes neither the newer attempt's files nor its temporary ones
 * (.new-RANK-NUMBER). A newer attempt removes files of older ones: those that it replaces, and those that were not
 * finished.
 *
 * The file `.total` beside these folders has the bytes and the number of all files. A rank changes it under a lock of
 * the whole file, before it renames: if the rank is killed in between, too much is counted and never too little.
 *
 * A file is reported when its bytes, its name and the names of all folders above it are durable. */
#include "executor/program/tracking/artifact_place.h"

#include "base/alloc.h"
#include "base/beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER     "artifacts"
#define ATTEMPT    "attempt-%d"
#define TOTAL      ".total"
#define UNFINISHED ".new-"

enum { FOLDER_MODE = 0777, FILE_MODE = 0666, NAME_BYTES = 512 };

struct total {
    int64_t bytes, files;
};

void artifact_place_init(struct artifact_place *p, int job, int attempt, int rank) {
    *p = (struct artifact_place){ .job = job, .attempt = attempt, .rank = rank, .all = -1, .own = -1 };
}

void artifact_place_done(struct artifact_place *p) {
    closep(&p->all);
    closep(&p->own);
    free(p->older);
    p->older = NULL;
    p->n_older = 0;
}

void artifact_folder(int attempt, char ret[ARTIFACT_FOLDER_BYTES]) {
    snprintf(ret, ARTIFACT_FOLDER_BYTES, FOLDER "/" ATTEMPT, attempt);
}

/* ---- the folders ---- */

static DIR *listing(int folder) {
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    return d;
}

static void remove_unfinished(int folder, const char *begin) {
    DIR *d = listing(folder);
    for (const struct dirent *entry; d && (entry = readdir(d));)
        if (strncmp(entry->d_name, begin, strlen(begin)) == 0)
            unlinkat(folder, entry->d_name, 0);
    if (d)
        closedir(d);
}

/* 0: the name is no folder of an attempt. */
static int attempt_of(const char *name) {
    char again[ARTIFACT_FOLDER_BYTES];
    int attempt = 0;
    if (sscanf(name, ATTEMPT, &attempt) != 1)
        return 0;
    snprintf(again, sizeof again, ATTEMPT, attempt);
    return strcmp(name, again) == 0 ? attempt : 0;
}

static void older_add(struct artifact_place *p, const char *name, int attempt) {
    CLEANUP(closep) int folder = -1;
    p->older = alloc_grow(p->older, p->n_older, sizeof *p->older);
    p->older[p->n_older++] = attempt;
    if (beneath_open(p->all, name, O_RDONLY | O_DIRECTORY, name, &folder, NULL) == ST_OK)
        remove_unfinished(folder, UNFINISHED);
}

static status_t folders_open(struct artifact_place *p, struct err *e) {
    CLEANUP(closep) int all = -1;
    char begin[ARTIFACT_TEMPORARY_BYTES], name[ARTIFACT_FOLDER_BYTES];
    if (p->own >= 0)
        return ST_OK;
    snprintf(name, sizeof name, ATTEMPT, p->attempt);
    TRY(beneath_make(p->job, FOLDER, FOLDER_MODE, FOLDER, &all, e));
    TRY(beneath_make(all, name, FOLDER_MODE, name, &p->own, e));
    p->all = take_fd(&all);
    DIR *d = listing(p->all);
    for (const struct dirent *entry; d && (entry = readdir(d));) {
        const int attempt = attempt_of(entry->d_name);
        if (attempt > 0 && attempt < p->attempt)
            older_add(p, entry->d_name, attempt);
    }
    if (d)
        closedir(d);
    snprintf(begin, sizeof begin, UNFINISHED "%d-", p->rank);
    remove_unfinished(p->own, begin);
    return ST_OK;
}

status_t artifact_place_begin(struct artifact_place *p, char temporary[ARTIFACT_TEMPORARY_BYTES], int *ret_fd,
                              struct err *e) {
    TRY(folders_open(p, e));
    snprintf(temporary, ARTIFACT_TEMPORARY_BYTES, UNFINISHED "%d-%lld", p->rank, (long long)++p->begun);
    *ret_fd = openat(p->own, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    return *ret_fd < 0 ? err_errno(e, "its file cannot be made") : ST_OK;
}

void artifact_place_drop(struct artifact_place *p, const char *temporary) { unlinkat(p->own, temporary, 0); }

/* ---- the total ---- */

static status_t total_lock(const struct artifact_place *p, int *ret_fd, struct total *ret, struct err *e) {
    CLEANUP(closep) int fd = openat(p->all, TOTAL, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    if (fd < 0 || fcntl(fd, F_OFD_SETLKW, &lock) < 0)
        return err_errno(e, "the count of all files cannot be changed");
    if (pread(fd, ret, sizeof *ret, 0) != sizeof *ret || ret->bytes < 0 || ret->files < 0)
        *ret = (struct total){ 0 };
    *ret_fd = take_fd(&fd);
    return ST_OK;
}

static status_t total_write(int fd, const struct total *total, struct err *e) {
    return pwrite(fd, total, sizeof *total, 0) == sizeof *total
               ? ST_OK
               : err_errno(e, "the count of all files cannot be changed");
}

static status_t total_check(const struct total *total, struct err *e) {
    if (total->bytes > ARTIFACTS_BYTES)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the files of the job would have more than 1 GiB");
    if (total->files > ARTIFACTS_MAX)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the job has %d files already", ARTIFACTS_MAX);
    return ST_OK;
}

/* ---- keeping a file ---- */

/* Opens the folder of `path` in the folder of an attempt; ret_name: the last part of path. */
static status_t parent_open(const struct artifact_place *p, int attempt, const char *path, int *ret,
                            const char **ret_name, struct err *e) {
    char folder[NAME_BYTES];
    const char *slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) : 0;
    *ret_name = slash ? slash + 1 : path;
    if (attempt == p->attempt && slash) {
        snprintf(folder, sizeof folder, "%.*s", n, path);
        return beneath_make(p->own, folder, FOLDER_MODE, folder, ret, e);
    }
    snprintf(folder, sizeof folder, ATTEMPT "/%.*s", attempt, n, path);
    return beneath_open(p->all, folder, O_RDONLY | O_DIRECTORY, folder, ret, e);
}

static int64_t size_at(int folder, const char *name) {
    struct stat st;
    return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
}

/* What the earlier attempts have of the path; `remove`: removes it. */
static struct total older_files(const struct artifact_place *p, const char *path, bool remove) {
    struct total found = { 0 };
    for (size_t i = 0; i < p->n_older; i++) {
        CLEANUP(closep) int folder = -1;
        const char *name;
        if (parent_open(p, p->older[i], path, &folder, &name, NULL) != ST_OK)
            continue;
        const int64_t bytes = size_at(folder, name);
        if (bytes < 0 || (remove && unlinkat(folder, name, 0) < 0))
            continue;
        found.bytes += bytes;
        found.files++;
    }
    return found;
}

/* Every folder of the path, and those above. */
static status_t folders_sync(const struct artifact_place *p, const char *path, struct err *e) {
    char folder[NAME_BYTES];
    bool durable = fsync(p->own) == 0 && fsync(p->all) == 0 && fsync(p->job) == 0;
    for (const char *slash = strchr(path, '/'); durable && slash; slash = strchr(slash + 1, '/')) {
        CLEANUP(closep) int fd = -1;
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        TRY(beneath_open(p->own, folder, O_RDONLY | O_DIRECTORY, folder, &fd, e));
        durable = fsync(fd) == 0;
    }
    return durable ? ST_OK : err_errno(e, "its folder cannot be written");
}

status_t artifact_place_keep(struct artifact_place *p, const char *temporary, int fd, const char *path, int64_t bytes,
                             struct err *e) {
    CLEANUP(closep) int folder = -1, locked = -1;
    struct total total;
    const char *name;
    TRY(parent_open(p, p->attempt, path, &folder, &name, e));
    if (fdatasync(fd) < 0)
        return err_errno(e, "it cannot be written");
    TRY(total_lock(p, &locked, &total, e));
    const struct total older = older_files(p, path, false);
    const int64_t was = size_at(folder, name);
    total.bytes += bytes - (was > 0 ? was : 0);
    total.files += was < 0;
    TRY(total_check(&(struct total){ total.bytes - older.bytes, total.files - older.files }, e));
    TRY(total_write(locked, &total, e));
    if (renameat(p->own, temporary, folder, name) < 0)
        return err_errno(e, "it cannot get its name");
    TRY(folders_sync(p, path, e));
    if (older.files == 0)
        return ST_OK;
    const struct total removed = older_files(p, path, true);
    total.bytes -= removed.bytes;
    total.files -= removed.files;
    return total_write(locked, &total, e);
}
