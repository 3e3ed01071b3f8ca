/* Names, lock and private folders of one service directory.
 *
 * The runtime folder's name contains the user and a part of the SHA-256 of DIR's real path: short enough for the path
 * of a unix socket, and found again by the next `up` after a crash. The lock is an fcntl lock on DIR/lock. The kernel
 * releases it when the process dies and reports its owner's pid to others. The owner removes the file at the end, so a
 * process that has just locked it checks that the file still has its name, and else starts again. */
#include "cli/up/directory.h"

#include "base/file.h"
#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void directory_join(const struct directory *d, const char *name, char ret[DIRECTORY_PATH_BYTES + 64]) {
    snprintf(ret, DIRECTORY_PATH_BYTES + 64, "%s/%s", d->path, name);
}

/* XDG_RUNTIME_DIR if it is ours and short, else /tmp. */
static const char *runtime_base(void) {
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    bool usable = xdg && *xdg == '/' && strlen(xdg) < 40 && stat(xdg, &st) == 0 && S_ISDIR(st.st_mode) &&
                  st.st_uid == geteuid();
    return usable ? xdg : "/tmp";
}

status_t directory_find(const char *dir, bool make, struct directory *ret, struct err *e) {
    struct directory d = { .lock_fd = -1 };
    if (make)
        TRY(dir_make(dir, 0755, e));
    char *real = realpath(dir, NULL);
    if (!real)
        return err_errno(e, "'%s'", dir);
    int n = snprintf(d.path, sizeof d.path, "%s", real);
    free(real);
    if (n >= (int)sizeof d.path)
        return err_set(e, ST_INVALID_ARGUMENT, "the path of '%.80s' has %d bytes; at most %zu are usable", dir, n,
                       sizeof d.path - 1);
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_of(d.path, strlen(d.path), digest);
    sha256_hex(digest, hex);
    snprintf(d.runtime, sizeof d.runtime, "%s/trainyard-%u-%.12s", runtime_base(), (unsigned)geteuid(), hex);
    /* If root runs `up`, another user owns the sockets and cannot enter our private folder. */
    if (geteuid() == 0)
        snprintf(d.sockets, sizeof d.sockets, "/tmp/trainyard-%u-%.12s-pg", (unsigned)geteuid(), hex);
    else
        snprintf(d.sockets, sizeof d.sockets, "%s/pg", d.runtime);
    *ret = d;
    return ST_OK;
}

static const struct flock entire_file = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

status_t directory_holder(const struct directory *d, pid_t *ret, struct err *e) {
    char path[DIRECTORY_PATH_BYTES + 64];
    directory_join(d, "lock", path);
    CLEANUP(closep) int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        *ret = 0;
        return ST_OK;
    }
    struct flock found = entire_file;
    if (fd < 0 || fcntl(fd, F_GETLK, &found) < 0)
        return err_errno(e, "reading the lock '%s'", path);
    *ret = found.l_type == F_UNLCK ? 0 : found.l_pid;
    return ST_OK;
}

static status_t already_runs(const struct directory *d, struct err *e) {
    pid_t holder = 0;
    TRY(directory_holder(d, &holder, e));
    return err_set(e, ST_FAILED_PRECONDITION,
                   "a service already runs in '%s' (process %d); stop it with 'trainyard down --dir %s'", d->path,
                   (int)holder, d->path);
}

/* The lock's owner removes the file at its end, so a lock on a file that has lost its name protects nothing. */
static bool is_same_file(int fd, const char *path) {
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

status_t directory_lock(struct directory *d, struct err *e) {
    char path[DIRECTORY_PATH_BYTES + 64];
    directory_join(d, "lock", path);
    for (;;) {
        CLEANUP(closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0)
            return err_errno(e, "open '%s'", path);
        struct flock wanted = entire_file;
        if (fcntl(fd, F_SETLK, &wanted) < 0) {
            if (errno == EAGAIN || errno == EACCES)
                return already_runs(d, e);
            return err_errno(e, "locking '%s'", path);
        }
        if (is_same_file(fd, path)) {
            d->lock_fd = take_fd(&fd);
            return ST_OK;
        }
    }
}

/* Creates a folder of mode 0700 that uid owns, or verifies the one of an earlier run. */
static status_t private_directory(const char *path, uid_t uid, gid_t gid, struct err *e) {
    struct stat st;
    bool made = mkdir(path, 0700) == 0;
    if (!made && errno != EEXIST)
        return err_errno(e, "mkdir '%s'", path);
    if (made && geteuid() == 0 && chown(path, uid, gid) < 0)
        return err_errno(e, "chown '%s'", path);
    if (lstat(path, &st) < 0)
        return err_errno(e, "stat '%s'", path);
    if (!S_ISDIR(st.st_mode) || (st.st_mode & 0777) != 0700 || st.st_uid != uid)
        return err_set(e, ST_PERMISSION_DENIED,
                       "'%s' is not a private directory of the user that needs it (uid %u): remove it", path,
                       (unsigned)uid);
    return ST_OK;
}

status_t directory_prepare(struct directory *d, uid_t uid, gid_t gid, struct err *e) {
    static const char *const folders[] = { "logs", "checkpoints", "executors" };
    char path[DIRECTORY_PATH_BYTES + 64];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        directory_join(d, folders[i], path);
        TRY(dir_make(path, 0755, e));
    }
    TRY(private_directory(d->runtime, geteuid(), getegid(), e));
    d->owns_runtime = true;
    TRY(private_directory(d->sockets, uid, gid, e));
    d->owns_sockets = true;
    directory_join(d, "address", path);
    unlink(path); /* left by an `up` that was killed */
    snprintf(path, sizeof path, "%s/controller.sock", d->runtime);
    unlink(path);
    return ST_OK;
}

status_t directory_write_address(const struct directory *d, const char *address, struct err *e) {
    char path[DIRECTORY_PATH_BYTES + 64], line[128];
    directory_join(d, "address", path);
    int n = snprintf(line, sizeof line, "%s\n", address);
    return file_write_atomic(path, line, (size_t)n, 0644, e);
}

void directory_leave(struct directory *d) {
    char path[DIRECTORY_PATH_BYTES + 64];
    if (d->lock_fd < 0)
        return;
    directory_join(d, "address", path);
    unlink(path);
    if (d->owns_sockets)
        status_ignore(dir_remove(d->sockets, NULL));
    if (d->owns_runtime)
        status_ignore(dir_remove(d->runtime, NULL));
    directory_join(d, "lock", path);
    unlink(path);
    close(d->lock_fd);
    d->lock_fd = -1;
}
