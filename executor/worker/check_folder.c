#include "base/cleanup.h"
#include "base/cluster_mark.h"
#include "base/roots.h"
#include "executor/worker/check_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool may_write(int fd) { return faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0; }

static void judge_folder(struct check *k, int fd, double bytes) {
    const char *directory = k->request->checkpoint_directory;
    const double MiB = 1 << 20;
    struct statvfs fs;
    if (!may_write(fd))
        check_problem(k, true, "checkpoint.directory: '%s' cannot be written to: %s", directory, strerror(errno));
    else if (fstatvfs(fd, &fs) != 0)
        check_problem(k, true, "checkpoint.directory: the free space of '%s' is unknown: %s", directory,
                      strerror(errno));
    else if ((double)fs.f_bavail * (double)fs.f_frsize < bytes)
        check_problem(k, true, "checkpoint.directory: '%s' has %.1f MiB of free space, and a checkpoint takes %.1f MiB",
                      directory, (double)fs.f_bavail * (double)fs.f_frsize / MiB, bytes / MiB);
}

status_t check_cluster(const struct check *k, const char *folder, struct err *e) {
    const struct check_request *q = k->request;
    status_t st = cluster_mark(q->checkpoint_roots, folder, q->cluster, CLUSTER_MARK_CHECK, NULL, e);
    return st == ST_NOT_FOUND || st == ST_PERMISSION_DENIED ? ST_OK : st;
}

status_t check_folder(struct check *k, double bytes, struct err *e) {
    const struct check_request *q = k->request;
    CLEANUP(closep) int fd = -1;
    struct err why = { "" };
    if (!*q->checkpoint_directory)
        return ST_OK;
    status_t st = roots_find_made(q->checkpoint_roots, q->checkpoint_directory, &fd, &why);
    if (st == ST_RESOURCE_EXHAUSTED)
        return err_set(e, st, "%s", why.msg);
    if (st != ST_OK)
        check_problem(k, true, "checkpoint.directory: %s", why.msg);
    else if (check_cluster(k, q->checkpoint_directory, &why) != ST_OK)
        check_problem(k, false, "checkpoint.directory: %s", why.msg);
    else
        judge_folder(k, fd, bytes);
    return ST_OK;
}
