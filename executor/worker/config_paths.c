#include "executor/worker/config_parts.h"

#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/roots.h"

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

static void *keep(struct config_paths *p, void *owned) {
    p->all = alloc_grow(p->all, p->n, sizeof *p->all);
    return p->all[p->n++] = owned;
}

static bool is_kind(mode_t mode, enum member_path kind) {
    return (S_ISREG(mode) && kind != MEMBER_FOLDER) || (S_ISDIR(mode) && kind != MEMBER_FILE);
}

/* O_NONBLOCK: a named pipe is refused, not waited for. */
static status_t path_admit(const char *path, enum member_path kind, const struct roots *roots, struct err *e) {
    static const char *const kinds[] = {
        [MEMBER_FILE] = "a regular file", [MEMBER_FOLDER] = "a folder", [MEMBER_FILE_OR_FOLDER] = "a file or a folder"
    };
    CLEANUP(closep) int fd = -1;
    TRY(roots_open(roots, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, &fd, e));
    struct stat info;
    if (fstat(fd, &info) < 0)
        return err_unreadable(e, "stat '%s'", path);
    if (!is_kind(info.st_mode, kind))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not %s", path, kinds[kind]);
    return ST_OK;
}

static status_t judge_path(struct config_judge *judge, status_t st, const char **ret, const struct err *e) {
    if (st != ST_INVALID_ARGUMENT && st != ST_NOT_FOUND && st != ST_PERMISSION_DENIED)
        return st;
    judge->n++;
    *ret = "";
    judge->problem(judge->ctx, e->msg);
    return ST_OK;
}

status_t config_path(struct config_paths *p, const char *field, const char *uri, enum member_path kind,
                     const struct roots *roots, const char **ret, struct err *e) {
    char path[PATH_MAX];
    struct err why;
    status_t st = spec_uri_path(uri, path, sizeof path, &why);
    if (st == ST_OK)
        st = path_admit(path, kind, roots, &why);
    if (st != ST_OK) {
        st = err_set(e, st, "%s: %s", field, why.msg);
        return p->judge ? judge_path(p->judge, st, ret, e) : st;
    }
    *ret = keep(p, alloc_copy_text(path));
    return ST_OK;
}

status_t config_path_list(struct config_paths *p, const char *field, char *const *uris, size_t n,
                          const struct roots *roots, const char *const **ret, struct err *e) {
    const char **list = keep(p, alloc_zeroed(n, sizeof *list));
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s[%zu]", field, i);
        TRY(config_path(p, name, uris[i], MEMBER_FILE, roots, &list[i], e));
    }
    *ret = list;
    return ST_OK;
}
