/* The mark that records which cluster owns a folder of checkpoints: a file with the cluster's id.
 *
 * A folder is checked first. A mark of another cluster, or a file that is no mark, is refused. To take a folder without
 * a mark, the id is written to a file with a random name and synced. Then the file gets the name of the mark, but only
 * if no mark exists. So a reader never sees a part of a mark, and of two clusters that take a folder at the same time
 * exactly one wins. The folder is checked again afterwards, because the other cluster may have won. */
#include "base/cluster_mark.h"

#include "base/beneath.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { UUID_TEXT = 36 };

static bool uuid_valid(const char *text) {
    return strlen(text) == UUID_TEXT && strspn(text, "0123456789abcdef-") == UUID_TEXT;
}

static status_t refuse(const char *path, const char *found, const char *cluster, struct err *e) {
    return err_set(e, ST_FAILED_PRECONDITION,
                   "'%s' belongs to cluster %s, and this is %s: use another directory, or remove its " CLUSTER_MARK_NAME
                   " if that cluster is gone",
                   path, found, cluster);
}

/* *ret_there becomes true if the mark exists and names this cluster. The mark of another cluster is an error. */
static status_t check(int folder, const char *path, const char *cluster, bool *ret_there, struct err *e) {
    char text[UUID_TEXT + 2] = "";
    CLEANUP(closep) int fd = -1;
    *ret_there = false;
    status_t st = beneath_open(folder, CLUSTER_MARK_NAME, O_RDONLY | O_NONBLOCK | O_NOCTTY, path, &fd, e);
    if (st != ST_OK)
        return st == ST_NOT_FOUND ? ST_OK : st;
    struct stat found;
    if (fstat(fd, &found) < 0)
        return err_errno(e, "stat '%s/" CLUSTER_MARK_NAME "'", path);
    if (!S_ISREG(found.st_mode))
        return err_set(
            e, ST_DATA_LOSS,
            "'%s/" CLUSTER_MARK_NAME "' is not a regular file: remove it if the checkpoints are this service's", path);
    ssize_t n = read(fd, text, sizeof text - 1);
    if (n < 0)
        return err_errno(e, "read '%s/" CLUSTER_MARK_NAME "'", path);
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (!uuid_valid(text))
        return err_set(e, ST_DATA_LOSS,
                       "'%s/" CLUSTER_MARK_NAME
                       "' holds no cluster's id: write '%s' into it if the checkpoints are this "
                       "service's",
                       path, cluster);
    *ret_there = strcmp(text, cluster) == 0;
    return *ret_there ? ST_OK : refuse(path, text, cluster, e);
}

/* Gives the file its final name, unless that name exists already (EEXIST). Two calls are tried, because some file
 * systems have no hard links, and some cannot rename without replacing. */
static int name_new(int folder, const char *from, const char *to) {
    if (linkat(folder, from, folder, to, 0) == 0)
        return 0;
    if (errno == EEXIST)
        return -1;
    return renameat2(folder, from, folder, to, RENAME_NOREPLACE);
}

/* Writes the mark under a temporary name first, so that no process reads a half-written file. */
static status_t take(int folder, const char *path, const char *cluster, bool *ret_taken, struct err *e) {
    char name[64], line[UUID_TEXT + 2];
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return err_errno(e, "draw a name");
    snprintf(name, sizeof name, CLUSTER_MARK_NAME ".%016llx", (unsigned long long)random);
    snprintf(line, sizeof line, "%s\n", cluster);
    CLEANUP(closep) int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_errno(e, "make '%s/" CLUSTER_MARK_NAME "'", path);
    status_t st = fd_write_all(fd, line, strlen(line), e);
    if (st != ST_OK)
        st = err_prefix(e, st, "'%s/" CLUSTER_MARK_NAME "': ", path);
    else if (fsync(fd) < 0)
        st = err_errno(e, "write '%s/" CLUSTER_MARK_NAME "'", path);
    *ret_taken = st == ST_OK && name_new(folder, name, CLUSTER_MARK_NAME) == 0;
    if (st == ST_OK && !*ret_taken && errno != EEXIST)
        st = err_errno(e, "make '%s/" CLUSTER_MARK_NAME "'", path);
    unlinkat(folder, name, 0);
    if (st == ST_OK && *ret_taken && fsync(folder) < 0)
        st = err_errno(e, "sync '%s'", path);
    return st;
}

status_t cluster_mark_at(int folder, const char *path, const char *cluster, enum cluster_mark_how how, bool *ret_taken,
                         struct err *e) {
    bool there, taken = false;
    if (ret_taken)
        *ret_taken = false;
    if (!*cluster)
        return ST_OK;
    TRY(check(folder, path, cluster, &there, e));
    if (!there && how == CLUSTER_MARK_TAKE) {
        TRY(take(folder, path, cluster, &taken, e));
        TRY(check(folder, path, cluster, &there, e)); /* another cluster may have taken the folder */
    }
    if (ret_taken)
        *ret_taken = taken;
    return ST_OK;
}

status_t cluster_mark(const struct roots *roots, const char *folder, const char *cluster, enum cluster_mark_how how,
                      bool *ret_taken, struct err *e) {
    CLEANUP(closep) int fd = -1;
    if (ret_taken)
        *ret_taken = false;
    if (!*cluster)
        return ST_OK;
    TRY(roots_open(roots, folder, O_RDONLY | O_DIRECTORY, &fd, e));
    return cluster_mark_at(fd, folder, cluster, how, ret_taken, e);
}

status_t cluster_mark_folder(const char *path, int levels, char *ret, size_t n, struct err *e) {
    size_t length = strlen(path);
    for (int i = 0; i < levels; i++) {
        while (length > 0 && path[length - 1] != '/')
            length--;
        while (length > 1 && path[length - 1] == '/')
            length--;
    }
    if (length == 0 || path[0] != '/' || length >= n)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.200s' is not a path of a job's checkpoints", path);
    memcpy(ret, path, length);
    ret[length] = '\0';
    return ST_OK;
}
