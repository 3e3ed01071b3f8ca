#include "executor/worker/config_parts.h"

#include "api/spec/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void config_paths_done(struct config_paths *p) {
    for (size_t i = 0; i < p->n; i++)
        free(p->all[i]);
    free(p->all);
    *p = (struct config_paths){ 0 };
}

static status_t keep(struct config_paths *p, void *owned, struct err *e) {
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 8;
        char **all = realloc(p->all, cap * sizeof *all);
        if (!all) {
            free(owned);
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the data's paths");
        }
        p->all = all;
        p->cap = cap;
    }
    p->all[p->n++] = owned;
    return ST_OK;
}

/* The path of an open descriptor without symbolic links. */
static status_t fd_path(int fd, char ret[PATH_MAX], struct err *e) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, ret, PATH_MAX - 1);
    if (n < 0)
        return err_errno(e, "resolve descriptor %d", fd);
    ret[n] = '\0';
    return ST_OK;
}

static bool path_below(const char *path, const char *root) {
    size_t n = strlen(root);
    while (n > 1 && root[n - 1] == '/')
        n--;
    return n == 1 || (strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0'));
}

static bool roots_admit(const struct data_roots *roots, const char *path) {
    char root[PATH_MAX];
    for (size_t i = 0; i < roots->n; i++)
        if (realpath(roots->paths[i], root) && path_below(path, root))
            return true;
    return false;
}

static bool is_kind(mode_t mode, enum config_path_kind kind) {
    return (S_ISREG(mode) && kind != CONFIG_FOLDER) || (S_ISDIR(mode) && kind != CONFIG_FILE);
}

/* O_NONBLOCK: a named pipe is refused, not waited for. */
static status_t path_admit(const char *path, enum config_path_kind kind, const struct data_roots *roots,
                           char resolved[PATH_MAX], struct err *e) {
    static const char *const kinds[] = {
        [CONFIG_FILE] = "a regular file", [CONFIG_FOLDER] = "a folder", [CONFIG_FILE_OR_FOLDER] = "a file or a folder"
    };
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "open '%s'", path);
    struct stat info;
    if (fstat(fd, &info) < 0)
        return err_errno(e, "stat '%s'", path);
    TRY(fd_path(fd, resolved, e));
    if (roots && roots->n && !roots_admit(roots, resolved))
        return err_set(e, ST_PERMISSION_DENIED, "'%s' is outside of the folders that this executor may read data from",
                       path);
    if (!is_kind(info.st_mode, kind))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not %s", path, kinds[kind]);
    return ST_OK;
}

status_t config_path(struct config_paths *p, const char *field, const char *uri, enum config_path_kind kind,
                     const struct data_roots *roots, const char **ret, struct err *e) {
    char path[PATH_MAX], resolved[PATH_MAX];
    struct err why;
    status_t st = spec_uri_path(uri, path, sizeof path, &why);
    if (st == ST_OK)
        st = path_admit(path, kind, roots, resolved, &why);
    if (st != ST_OK)
        return err_set(e, st == ST_RESOURCE_EXHAUSTED ? st : ST_INVALID_ARGUMENT, "%s: %s", field, why.msg);
    char *copy = strdup(resolved);
    if (!copy)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a path");
    TRY(keep(p, copy, e));
    *ret = copy;
    return ST_OK;
}

status_t config_path_list(struct config_paths *p, const char *field, char *const *uris, size_t n,
                          const struct data_roots *roots, const char *const **ret, struct err *e) {
    const char **list = calloc(n + 1, sizeof *list);
    if (!list)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the data's paths");
    TRY(keep(p, list, e));
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s[%zu]", field, i);
        TRY(config_path(p, name, uris[i], CONFIG_FILE, roots, &list[i], e));
    }
    *ret = list;
    return ST_OK;
}
