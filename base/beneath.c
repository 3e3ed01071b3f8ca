/* Files and folders below an open folder, by openat2(2) with RESOLVE_BENEATH and without symbolic links.
 *
 * Making a path opens or makes one part after the other, each below the part before, so that no part can be replaced
 * between two calls. Removing a folder empties it depth first: entries are removed by name in their open folder, and
 * links are removed, not followed. */
#include "base/beneath.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MAX_DEPTH = 64,
    /* The kernel returns EAGAIN if a folder above the name is renamed during the lookup. The lookup is then repeated,
     * up to this many times. */
    TRIES = 16,
};

/* Like openat: returns -1 after an error, with errno set. */
static int open_resolved(int root, const char *name, int flags) {
    struct open_how how = { .flags = (unsigned)(flags | O_CLOEXEC),
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    long fd = -1;
    for (int i = 0; i < TRIES; i++) {
        fd = syscall(SYS_openat2, root, *name ? name : ".", &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    return (int)fd;
}

static status_t refuse(const char *path, struct err *e) {
    if (errno == ELOOP)
        return err_set(e, ST_PERMISSION_DENIED,
                       "'%s' has a symbolic link on its way, which is not followed: name what it points to", path);
    if (errno == EXDEV)
        return err_set(e, ST_PERMISSION_DENIED, "'%s' leads out of the folder that it must stay in", path);
    if (errno == ENOSYS)
        return err_set(e, ST_UNIMPLEMENTED, "open '%s': this kernel has no openat2, which came with Linux 5.6", path);
    return err_unreadable(e, "open '%s'", path);
}

status_t beneath_open(int root, const char *name, int flags, const char *path, int *ret, struct err *e) {
    int fd = open_resolved(root, name, flags);
    if (fd < 0)
        return refuse(path, e);
    struct stat st;
    /* With O_PATH | O_NOFOLLOW the kernel opens a link itself if it is the last part of the name. */
    if ((flags & O_PATH) && (fstat(fd, &st) < 0 || S_ISLNK(st.st_mode))) {
        close(fd);
        errno = ELOOP;
        return refuse(path, e);
    }
    *ret = fd;
    return ST_OK;
}

/* ---- making ---- */

/* Refuses a folder to which all users may write, because any user could create the next name in it first. */
static status_t check_made(int fd, const char *path, struct err *e) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, "stat '%s'", path);
    if (st.st_mode & S_IWOTH)
        return err_set(e, ST_PERMISSION_DENIED,
                       "'%s' is, or lies in, a folder that all users may write to: anybody could take its names", path);
    return ST_OK;
}

/* Opens one part below *fd, and moves *fd to it. With mode 0 a missing folder is not created. *ret_there becomes true
 * if the folder exists after the call. */
static status_t make_one(int *fd, const char *part, unsigned mode, const char *path, bool *ret_there, struct err *e) {
    if (mode && mkdirat(*fd, part, mode) < 0 && errno != EEXIST)
        return err_errno(e, "create folder '%s'", path);
    int below = open_resolved(*fd, part, O_RDONLY | O_DIRECTORY);
    *ret_there = below >= 0;
    if (below < 0 && errno == ENOENT && !mode)
        return ST_OK;
    if (below < 0 && errno == ENOTDIR)
        return err_set(e, ST_ALREADY_EXISTS, "'%s' cannot be made: there is a file by the name of a folder", path);
    if (below < 0)
        return refuse(path, e);
    close(*fd);
    *fd = below;
    return check_made(*fd, path, e);
}

/* Opens the parts of the name one by one, each below the previous part. If a part is missing and mode is 0, stops at
 * the last existing folder. */
static status_t make(int root, const char *name, unsigned mode, const char *path, int *ret, struct err *e) {
    char parts[PATH_MAX];
    if (snprintf(parts, sizeof parts, "%s", name) >= (int)sizeof parts)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.80s...' is too long", path);
    CLEANUP(closep) int fd = open_resolved(root, ".", O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return refuse(path, e);
    TRY(check_made(fd, path, e));
    char *rest = NULL;
    bool there = true;
    for (char *part = strtok_r(parts, "/", &rest); part && there; part = strtok_r(NULL, "/", &rest)) {
        if (strcmp(part, "..") == 0)
            return err_set(e, ST_PERMISSION_DENIED, "'%s' has '..' in it", path);
        if (strcmp(part, ".") != 0)
            TRY(make_one(&fd, part, mode, path, &there, e));
    }
    if (ret)
        *ret = take_fd(&fd);
    return ST_OK;
}

status_t beneath_make(int root, const char *name, unsigned mode, const char *path, int *ret, struct err *e) {
    return make(root, name, mode, path, ret, e);
}

status_t beneath_find_made(int root, const char *name, const char *path, int *ret, struct err *e) {
    return make(root, name, 0, path, ret, e);
}

/* ---- removing ---- */

static status_t empty(int fd, int depth, const char *path, struct err *e);

/* Removes one name of the open folder: a file, a link, or a folder with everything in it. */
static status_t remove_entry(int fd, const char *name, int depth, const char *path, struct err *e) {
    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
        return ST_OK;
    if (errno != EISDIR && errno != EPERM)
        return err_errno(e, "remove '%s' in '%s'", name, path);
    if (depth == MAX_DEPTH)
        return err_set(e, ST_FAILED_PRECONDITION, "'%s' is more than %d folders deep", path, MAX_DEPTH);
    int below = open_resolved(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (below < 0)
        return errno == ENOENT ? ST_OK : err_errno(e, "remove '%s' in '%s'", name, path);
    TRY(empty(below, depth + 1, path, e));
    if (unlinkat(fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_errno(e, "remove '%s' in '%s'", name, path);
    return ST_OK;
}

/* Removes everything in the folder. Closes fd. */
static status_t empty(int fd, int depth, const char *path, struct err *e) {
    DIR *dir = fdopendir(fd);
    if (!dir) {
        status_t st = err_errno(e, "read '%s'", path);
        close(fd);
        return st;
    }
    status_t st = ST_OK;
    errno = 0;
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(dir)); errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            st = remove_entry(dirfd(dir), entry->d_name, depth, path, e);
    if (st == ST_OK && errno)
        st = err_errno(e, "read '%s'", path);
    closedir(dir);
    return st;
}

/* Opens the folder that contains `name`. *ret_last points to the last part of the name. */
static int open_parent(int root, const char *name, const char **ret_last) {
    char parent[PATH_MAX];
    const char *slash = strrchr(name, '/');
    *ret_last = slash ? slash + 1 : name;
    if (!slash)
        return open_resolved(root, ".", O_PATH | O_DIRECTORY);
    if ((size_t)snprintf(parent, sizeof parent, "%.*s", (int)(slash - name), name) >= sizeof parent) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open_resolved(root, parent, O_PATH | O_DIRECTORY);
}

status_t beneath_remove(int root, const char *name, const char *path, struct err *e) {
    const char *last;
    CLEANUP(closep) int parent = open_parent(root, name, &last);
    if (parent < 0)
        return errno == ENOENT ? ST_OK : refuse(path, e);
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not the name of a folder", path);
    int fd = open_resolved(parent, last, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return err_set(e, ST_FAILED_PRECONDITION, "'%s' is not a folder, and is not removed", path);
    if (fd < 0)
        return errno == ENOENT ? ST_OK : refuse(path, e);
    TRY(empty(fd, 0, path, e));
    if (unlinkat(parent, last, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_errno(e, "remove '%s'", path);
    return ST_OK;
}
