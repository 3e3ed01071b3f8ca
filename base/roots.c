/* Which paths a job may use.
 *
 * A path is compared with each root, by the root's given name and by its real path; the longest matching root wins. The
 * rest of the path is opened below the root without following links (beneath.h). An open file is then checked against
 * the files that are always refused: /proc and /sys, files that contain keys or tokens, and the exceptions, by device
 * and inode and by real path. */
#include "base/roots.h"

#include "base/beneath.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

status_t roots_except_find(const char *path, struct roots_except *ret, struct err *e) {
    struct stat st;
    if (stat(path, &st) < 0)
        return err_unreadable(e, "stat '%s'", path);
    *ret = (struct roots_except){ path, st.st_dev, st.st_ino };
    return ST_OK;
}

/* ---- which root ---- */

static bool has_parent_parts(const char *path) {
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

/* Returns the part of path below root, or NULL if path is not below root. *ret_n is the length of the root in path. */
static const char *rest_below(const char *path, const char *root, size_t *ret_n) {
    size_t n = strlen(root);
    while (n > 0 && root[n - 1] == '/')
        n--;
    if (strncmp(path, root, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    *ret_n = n;
    return path + n + strspn(path + n, "/");
}

/* Like rest_below, for the given name of the root or its real path. */
static const char *rest_of(const char *path, const char *root, size_t *ret_n) {
    char real[PATH_MAX];
    const char *rest = rest_below(path, root, ret_n);
    return rest ? rest : realpath(root, real) ? rest_below(path, real, ret_n) : NULL;
}

static status_t refuse_outside(const struct roots *r, const char *path, struct err *e) {
    return r->n ? err_set(e, ST_PERMISSION_DENIED, "'%s' is closed to jobs: it lies below no %s", path, r->option)
                : err_set(e, ST_PERMISSION_DENIED, "'%s' is closed to jobs: no %s is given", path, r->option);
}

status_t roots_locate(const struct roots *r, const char *path, const char **ret_root, const char **ret_name,
                      struct err *e) {
    if (path[0] != '/' || has_parent_parts(path))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not an absolute path without '..'", path);
    const char *root = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < r->n; i++) {
        size_t n;
        const char *rest = rest_of(path, r->paths[i], &n);
        if (rest && (!root || n > longest)) {
            root = r->paths[i];
            longest = n;
            *ret_name = rest;
        }
    }
    if (!root)
        return refuse_outside(r, path, e);
    *ret_root = root;
    return ST_OK;
}

status_t roots_find(const struct roots *r, const char *path, int *ret_root, const char **ret_name, struct err *e) {
    const char *root;
    TRY(roots_locate(r, path, &root, ret_name, e));
    int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_unreadable(e, "open the %s '%s'", r->option, root);
    *ret_root = fd;
    return ST_OK;
}

/* ---- refused under every root ---- */

/* Resolves the real path of the folder now, because the folder may have been moved since it was named. */
static bool is_within(const char *real, const struct roots_except *x) {
    char folder[PATH_MAX];
    size_t n;
    return realpath(x->path, folder) && folder[1] && rest_below(real, folder, &n);
}

static status_t real_path(int fd, const char *path, char ret[PATH_MAX], struct err *e) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, ret, PATH_MAX - 1);
    if (n < 0)
        return err_errno(e, "resolve '%s'", path);
    ret[n] = '\0';
    return ST_OK;
}

static status_t refuse_excepted(const struct roots *r, const char *path, struct err *e) {
    return err_set(e, ST_PERMISSION_DENIED,
                   "'%s' belongs to the service itself, and jobs may not read it, even below a %s", path, r->option);
}

static bool is_opened(const struct roots *r, const char *real) {
    const struct roots_except folder = { .path = r->opened };
    return r->opened && is_within(real, &folder);
}

static status_t check_excepted(const struct roots *r, int fd, const struct stat *st, const char *path, struct err *e) {
    char real[PATH_MAX];
    TRY(real_path(fd, path, real, e));
    if (is_opened(r, real))
        return ST_OK;
    for (size_t i = 0; i < r->n_except; i++) {
        const struct roots_except *x = &r->except[i];
        if ((x->device == st->st_dev && x->inode == st->st_ino) || is_within(real, x))
            return refuse_excepted(r, path, e);
    }
    return ST_OK;
}

/* Checks a path that may not exist yet. No part below the root is a link, so that its real path is known. */
static status_t check_excepted_name(const struct roots *r, int root, const char *name, const char *path,
                                    struct err *e) {
    char folder[PATH_MAX], real[2 * PATH_MAX];
    TRY(real_path(root, path, folder, e));
    snprintf(real, sizeof real, "%s/%s", folder[1] ? folder : "", name);
    if (is_opened(r, real))
        return ST_OK;
    for (size_t i = 0; i < r->n_except; i++)
        if (is_within(real, &r->except[i]))
            return refuse_excepted(r, path, e);
    return ST_OK;
}

status_t roots_check(const struct roots *r, int fd, const char *path, struct err *e) {
    struct stat st;
    struct statfs fs;
    if (!r)
        return ST_OK;
    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return err_unreadable(e, "stat '%s'", path);
    if (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC)
        return err_set(e, ST_PERMISSION_DENIED, "'%s' is a file of the kernel's, and no data", path);
    return r->n_except ? check_excepted(r, fd, &st, path, e) : ST_OK;
}

/* ---- opening ---- */

status_t roots_open(const struct roots *r, const char *path, int flags, int *ret, struct err *e) {
    CLEANUP(closep) int fd = -1;
    if (!r) {
        fd = open(path, flags | O_CLOEXEC);
        if (fd < 0)
            return err_unreadable(e, "open '%s'", path);
        *ret = take_fd(&fd);
        return ST_OK;
    }
    CLEANUP(closep) int root = -1;
    const char *name;
    TRY(roots_find(r, path, &root, &name, e));
    TRY(beneath_open(root, name, flags, path, &fd, e));
    TRY(roots_check(r, fd, path, e));
    if (!(flags & O_PATH) && (flags & O_ACCMODE) == O_RDONLY)
        TRY(secret_check(fd, path, e));
    *ret = take_fd(&fd);
    return ST_OK;
}

bool roots_has(const struct roots *r, const char *path) {
    CLEANUP(closep) int fd = -1;
    return roots_open(r, path, O_PATH, &fd, NULL) != ST_NOT_FOUND;
}

status_t roots_read(const struct roots *r, const char *path, struct bytes *ret, struct err *e) {
    CLEANUP(closep) int fd = -1;
    TRY(roots_open(r, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, &fd, e));
    return fd_read_file(fd, path, ret, e);
}

status_t roots_make(const struct roots *r, const char *path, unsigned mode, int *ret, struct err *e) {
    if (!r) {
        TRY(dir_make(path, mode, e));
        return roots_open(NULL, path, O_RDONLY | O_DIRECTORY, ret, e);
    }
    CLEANUP(closep) int root = -1, fd = -1;
    const char *name;
    TRY(roots_find(r, path, &root, &name, e));
    TRY(check_excepted_name(r, root, name, path, e));
    TRY(beneath_make(root, name, mode, path, &fd, e));
    TRY(roots_check(r, fd, path, e));
    *ret = take_fd(&fd);
    return ST_OK;
}

status_t roots_find_made(const struct roots *r, const char *path, int *ret, struct err *e) {
    CLEANUP(closep) int root = -1, fd = -1;
    const char *name;
    TRY(roots_find(r, path, &root, &name, e));
    TRY(check_excepted_name(r, root, name, path, e));
    TRY(beneath_find_made(root, name, path, &fd, e));
    TRY(roots_check(r, fd, path, e));
    *ret = take_fd(&fd);
    return ST_OK;
}
