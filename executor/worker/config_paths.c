#include "executor/worker/config_parts.h"

#include "api/spec/data_uri.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/roots.h"
#include "executor/worker/config_pattern.h"
#include "executor/worker/data_list.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a rank beside its data: sockets to its peers, checkpoints, what libraries keep open. */
enum { OTHER_FILES = 2560 };

void config_paths_done(struct config_paths *p) {
    for (size_t i = 0; i < p->n; i++)
        free(p->all[i]);
    free(p->all);
    *p = (struct config_paths){ 0 };
}

void *config_paths_keep(struct config_paths *p, void *owned) {
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

/* A path that is left out is "". */
static status_t judge_path(struct config_judge *judge, status_t st, const char **ret, const struct err *e) {
    if (st != ST_INVALID_ARGUMENT && st != ST_NOT_FOUND && st != ST_PERMISSION_DENIED)
        return st;
    judge->n++;
    *ret = "";
    judge->problem(judge->ctx, e->msg);
    return ST_OK;
}

/* The one object of a remote URI that is no pattern. */
static status_t copy_find(const struct config_paths *p, const char *uri, const char **ret, struct err *e) {
    size_t n = 0;
    if (!p->copies)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.200s' is no file of this machine: only the hosts of a service copy such data, so submit the "
                       "job to one, or copy the file and name it by file:///PATH",
                       uri);
    const struct data_list_object *object = data_list_find(p->copies->list, uri, &n);
    if (n != 1)
        return err_set(e, ST_INTERNAL, "this host has %zu copies of '%.200s'", n, uri);
    *ret = object->path;
    return ST_OK;
}

status_t config_path(struct config_paths *p, const char *field, const char *uri, enum member_path kind,
                     const struct roots *roots, const char **ret, struct err *e) {
    char local[PATH_MAX];
    const char *path = local;
    struct err why;
    const bool remote = data_uri_is_remote(uri);
    if (remote && p->judge) {
        p->judge->n_remote++;
        *ret = "";
        return ST_OK;
    }
    status_t st = remote ? copy_find(p, uri, &path, &why) : spec_uri_path(uri, local, sizeof local, &why);
    if (st == ST_OK)
        st = path_admit(path, kind, remote ? p->copies->roots : roots, &why);
    if (st != ST_OK) {
        st = err_set(e, st, "%s: %s", field, why.msg);
        return p->judge ? judge_path(p->judge, st, ret, e) : st;
    }
    *ret = config_paths_keep(p, alloc_copy_text(path));
    return ST_OK;
}

/* ---- lists ---- */

struct path_list {
    struct config_paths *paths;
    const struct roots *roots;
    const char **all;
    size_t n;
};

static status_t list_add(struct path_list *l, const char *field, const char *path, const struct roots *roots,
                         struct err *e) {
    struct err why;
    status_t st = l->n < LIMIT_DATA_OBJECTS
                      ? path_admit(path, MEMBER_FILE, roots, &why)
                      : err_set(&why, ST_INVALID_ARGUMENT, "the data are more than %d files", LIMIT_DATA_OBJECTS);
    const char *kept = path;
    if (st != ST_OK) {
        st = err_set(e, st, "%s: %s", field, why.msg);
        if (!l->paths->judge || judge_path(l->paths->judge, st, &kept, e) != ST_OK)
            return st;
    }
    l->all = alloc_grow(l->all, l->n, sizeof *l->all);
    l->all[l->n++] = *kept ? config_paths_keep(l->paths, alloc_copy_text(kept)) : "";
    return ST_OK;
}

static status_t list_add_copies(struct path_list *l, const char *field, const char *uri, struct err *e) {
    size_t n;
    const struct config_copies *copies = l->paths->copies;
    const struct data_list_object *objects = copies ? data_list_find(copies->list, uri, &n) : NULL;
    if (!objects) {
        const char *unused;
        return config_path(l->paths, field, uri, MEMBER_FILE, l->roots, &unused, e); /* says why */
    }
    for (size_t i = 0; i < n; i++)
        TRY(list_add(l, field, objects[i].path, copies->roots, e));
    return ST_OK;
}

static status_t list_add_matches(struct path_list *l, const char *field, const char *uri, struct err *e) {
    struct matched_paths found = { 0 };
    struct err why;
    const char *unused;
    status_t st = config_pattern_match(uri, l->roots, &found, &why);
    if (st != ST_OK) {
        st = err_set(e, st, "%s: %s", field, why.msg);
        return l->paths->judge ? judge_path(l->paths->judge, st, &unused, e) : st;
    }
    for (size_t i = 0; i < found.n && st == ST_OK; i++)
        st = list_add(l, field, found.all[i], l->roots, e);
    matched_paths_done(&found);
    return st;
}

static status_t list_add_uri(struct path_list *l, const char *field, const char *uri, struct err *e) {
    char path[PATH_MAX];
    if (data_uri_is_remote(uri))
        return list_add_copies(l, field, uri, e);
    if (data_uri_is_pattern(uri))
        return list_add_matches(l, field, uri, e);
    struct err why;
    if (spec_uri_path(uri, path, sizeof path, &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %s", field, why.msg);
    return list_add(l, field, path, l->roots, e);
}

/* The engine keeps data files open. */
static status_t open_files_raise(const char *field, size_t n, struct err *e) {
    struct rlimit limit;
    const rlim_t needed = (rlim_t)n + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= needed)
        return ST_OK;
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < needed)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "%s: %zu files need as many open files, but this host allows a process %llu: join them to fewer "
                       "files, or raise LimitNOFILE of the executor's service, or ulimit -n",
                       field, n, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = needed;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? ST_OK : err_errno(e, "raise the limit of open files");
}

/* ---- trees ---- */

/* The names in a store do not contain a signature. */
static void tree_add(struct config_paths *p, struct member_files *tree, const char *name, const char *path) {
    struct member_file *files = (struct member_file *)(uintptr_t)tree->files;
    const size_t n = strncmp(name, "http", 4) == 0 ? strcspn(name, "?") : strlen(name);
    files = alloc_grow(files, (size_t)tree->n, sizeof *files);
    files[tree->n++] = (struct member_file){ .name = config_paths_keep(p, alloc_format("%.*s", (int)n, name)),
                                             .path = config_paths_keep(p, alloc_copy_text(path)) };
    tree->files = files;
}

static status_t tree_add_copies(struct config_paths *p, const char *field, const char *uri, const struct roots *roots,
                                const char **ret, struct member_files *tree, struct err *e) {
    size_t n;
    const struct data_list_object *objects = p->copies ? data_list_find(p->copies->list, uri, &n) : NULL;
    if (!objects)
        return config_path(p, field, uri, MEMBER_FILE, roots, ret, e); /* says why */
    for (size_t i = 0; i < n; i++)
        tree_add(p, tree, objects[i].name, objects[i].path);
    return ST_OK;
}

static status_t tree_add_matches(struct config_paths *p, const char *field, const char *uri, const struct roots *roots,
                                 const char **ret, struct member_files *tree, struct err *e) {
    struct matched_paths found = { 0 };
    struct err why;
    status_t st = config_pattern_match(uri, roots, &found, &why);
    if (st != ST_OK) {
        st = err_set(e, st, "%s: %s", field, why.msg);
        return p->judge ? judge_path(p->judge, st, ret, e) : st;
    }
    for (size_t i = 0; i < found.n; i++)
        tree_add(p, tree, found.all[i], found.all[i]);
    matched_paths_done(&found);
    return ST_OK;
}

/* By its name: one file that is no archive is no data of images. */
static bool is_archive(const char *uri) {
    const size_t n = strlen(uri);
    return n > 4 && strcmp(uri + n - 4, ".tar") == 0;
}

static status_t tree_fill(struct config_paths *p, const char *field, const char *uri, const struct roots *roots,
                          const char **ret, struct member_files *tree, struct err *e) {
    if (data_uri_is_remote(uri))
        return tree_add_copies(p, field, uri, roots, ret, tree, e);
    if (data_uri_is_pattern(uri))
        return tree_add_matches(p, field, uri, roots, ret, tree, e);
    TRY(config_path(p, field, uri, is_archive(uri) ? MEMBER_FILE : MEMBER_FOLDER, roots, ret, e));
    if (**ret && is_archive(uri)) {
        tree_add(p, tree, *ret, *ret);
        *ret = "";
    }
    return ST_OK;
}

status_t config_path_tree(struct config_paths *p, const char *field, const char *uri, const struct roots *roots,
                          const char **ret_folder, struct member_files *ret, struct err *e) {
    struct member_files tree = { .n = 0 };
    *ret_folder = "";
    status_t st = *uri ? tree_fill(p, field, uri, roots, ret_folder, &tree, e) : ST_OK;
    if (tree.files)
        config_paths_keep(p, (void *)(uintptr_t)tree.files);
    *ret = tree;
    return st;
}

status_t config_path_list(struct config_paths *p, const char *field, char *const *uris, size_t n,
                          const struct roots *roots, const char *const **ret, int *ret_n, struct err *e) {
    struct path_list list = { .paths = p, .roots = roots };
    status_t st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s[%zu]", field, i);
        st = list_add_uri(&list, name, uris[i], e);
    }
    if (list.all)
        config_paths_keep(p, list.all);
    TRY(st);
    TRY(open_files_raise(field, list.n, e));
    *ret = list.all;
    *ret_n = (int)list.n;
    return ST_OK;
}
