/* Reading and writing whole files, and folders.
 *
 * Reads and writes repeat after EINTR and after short transfers. A file is read only if it is a regular file and fits
 * the limit of the buffer.
 *
 * An atomic write goes to PATH.tmp, is synced, and is then renamed to PATH; at last the parent folder is synced. After
 * a crash PATH has either its old or its new content. A folder is made part by part, and an existing part is accepted.
 * Removing a folder goes through the tree depth first and does not follow links. */
#include "base/file.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MIN_BYTES = 4096 };

status_t fd_write_all(int fd, const void *data, size_t n, struct err *e) {
    const char *p = data;
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_errno(e, "write");
        p += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

status_t fd_read_exact(int fd, void *data, size_t n, struct err *e) {
    char *p = data;
    while (n) {
        ssize_t k = read(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_errno(e, "read");
        if (k == 0)
            return err_set(e, ST_OUT_OF_RANGE, "the data ends %zu bytes early", n);
        p += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

status_t file_read(const char *path, struct bytes *ret, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_errno(e, "open '%s'", path) : fd_read_file(fd, path, ret, e);
}

static status_t too_long(const char *path, const struct bytes *ret, struct err *e) {
    return err_set(e, ST_RESOURCE_EXHAUSTED, "'%s' has more than the %zu bytes that are read at most", path,
                   ret->limit);
}

static ssize_t read_some(int fd, void *data, size_t n) {
    ssize_t got;
    do
        got = read(fd, data, n);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Where the buffer is full, one byte shows whether the file goes on. size: what the kernel says, if it is not 0. */
static status_t read_to_end(int fd, size_t size, const char *path, struct bytes *ret, struct err *e) {
    for (size_t begin = ret->len;;) {
        const size_t done = ret->len - begin, wanted = done < size ? size - done : READ_MIN_BYTES;
        const size_t space = ret->limit - ret->len, n = wanted < space ? wanted : space;
        char more;
        TRY(bytes_reserve(ret, n, e));
        const ssize_t got = n > 0 ? read_some(fd, ret->data + ret->len, n) : read_some(fd, &more, 1);
        if (got < 0)
            return err_errno(e, "read '%s'", path);
        if (got > 0 && n == 0)
            return too_long(path, ret, e);
        ret->len += (size_t)got;
        ret->data[ret->len] = '\0';
        if (got == 0)
            return ST_OK;
    }
}

status_t fd_read_file(int fd, const char *path, struct bytes *ret, struct err *e) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, "stat '%s'", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not a regular file", path);
    if ((uint64_t)st.st_size > ret->limit)
        return too_long(path, ret, e);
    return read_to_end(fd, (size_t)st.st_size, path, ret, e);
}

status_t dir_sync(const char *path, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "open folder '%s'", path);
    if (fsync(fd) < 0)
        return err_errno(e, "fsync folder '%s'", path);
    return ST_OK;
}

/* The new name of a file is durable only after its folder is synced. */
static status_t sync_parent(const char *path, struct err *e) {
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (!slash)
        return dir_sync(".", e);
    slash[slash == parent] = '\0'; /* keep the slash of the root folder */
    return dir_sync(parent, e);
}

enum { ACCESS_BITS = 0777 };

/* Without the fsync before the rename, a crash could leave an empty file under the final name. */
static status_t write_synced(const char *path, const void *data, size_t n, unsigned mode, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0)
        return err_errno(e, "create '%s'", path);
    struct stat found; /* a crash may have left the file with a wider mode */
    if (fstat(fd, &found) < 0 || ((found.st_mode & ACCESS_BITS & ~mode) && fchmod(fd, found.st_mode & mode) < 0))
        return err_errno(e, "chmod '%s'", path);
    status_t st = fd_write_all(fd, data, n, e);
    if (st != ST_OK)
        return err_prefix(e, st, "'%s': ", path);
    if (fsync(fd) < 0)
        return err_errno(e, "fsync '%s'", path);
    return ST_OK;
}

status_t file_write_atomic(const char *path, const void *data, size_t n, unsigned mode, struct err *e) {
    char tmp[PATH_MAX];
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.80s...' is too long", path);
    status_t st = write_synced(tmp, data, n, mode, e);
    if (st == ST_OK && rename(tmp, path) < 0)
        st = err_errno(e, "rename '%s' to '%s'", tmp, path);
    if (st != ST_OK) {
        unlink(tmp);
        return st;
    }
    return sync_parent(path, e);
}

status_t dir_make(const char *path, unsigned mode, struct err *e) {
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.80s...' is too long", path);
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char keep = *p;
        *p = '\0';
        if (mkdir(part, mode) < 0 && errno != EEXIST)
            return err_errno(e, "create folder '%s'", part);
        *p = keep;
        if (!keep)
            break;
    }
    struct stat st;
    if (stat(path, &st) < 0)
        return err_errno(e, "stat '%s'", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ST_ALREADY_EXISTS, "'%s' exists and is not a folder", path);
    return ST_OK;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

status_t dir_is_empty(const char *path, bool *ret, struct err *e) {
    DIR *dir = opendir(path);
    if (!dir && errno != ENOENT)
        return err_errno(e, "open folder '%s'", path);
    size_t entries = 0;
    while (dir && readdir(dir))
        entries++;
    if (dir)
        closedir(dir);
    *ret = entries <= 2; /* "." and ".." */
    return ST_OK;
}

status_t dir_remove(const char *path, struct err *e) {
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT)
        return err_errno(e, "remove '%s'", path);
    return ST_OK;
}

static int make_writable(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)ftw;
    if ((flag == FTW_D || flag == FTW_DNR) && (st->st_mode & S_IRWXU) != S_IRWXU)
        chmod(path, S_IRWXU);
    return 0;
}

status_t dir_remove_readonly(const char *path, struct err *e) {
    nftw(path, make_writable, 16, FTW_PHYS | FTW_MOUNT);
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) < 0 && errno != ENOENT)
        return err_errno(e, "remove '%s'", path);
    return ST_OK;
}
