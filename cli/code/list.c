/* code_list_read collects names, either from git (cli/code/git.c) or by a walk, and adds each by add_path: it asks the
 * patterns, stats the file in the open folder, and reads the target of a link. A name of git may be a folder (a
 * submodule, or another repository within the folder), which is then walked. The walk opens one folder after the other
 * by openat, without following links.
 *
 * When there are too many files, the walk stops there: the sentence names the entries that have most of the files seen
 * so far. */
#include "cli/code/list.h"

#include "api/code/entry.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/code/git.h"
#include "cli/code/ignore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct reading {
    int folder;
    const char *path;
    const struct ignore *ignore;
    struct code_list *list;
    bool named; /* git has listed a name */
};

struct code_list *code_list_free(struct code_list *list) {
    for (size_t i = 0; list && i < list->n; i++) {
        free(list->files[i].path);
        free(list->files[i].target);
    }
    if (list)
        free(list->files);
    free(list);
    return NULL;
}

/* ---- the largest entries ---- */

struct top {
    const char *name;
    size_t length, files;
    int64_t bytes;
    bool is_folder;
};

static int by_bytes(const void *a, const void *b) {
    const struct top *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int by_count(const void *a, const void *b) {
    const struct top *x = a, *y = b;
    return (x->files < y->files) - (x->files > y->files);
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct code_file *)a)->path, ((const struct code_file *)b)->path);
}

void code_list_largest(const struct code_list *list, bool by_files, char *ret, size_t cap) {
    enum { SHOWN = 3, NAME_SHOWN = 40 };
    CLEANUP(freep) struct top *tops = alloc_zeroed(list->n, sizeof *tops);
    size_t n = 0, used = 0;
    for (size_t i = 0; i < list->n; i++) { /* sorted: the files of a folder follow each other */
        const char *path = list->files[i].path;
        const size_t length = strcspn(path, "/");
        if (n == 0 || tops[n - 1].length != length || memcmp(tops[n - 1].name, path, length) != 0)
            tops[n++] = (struct top){ .name = path, .length = length, .is_folder = path[length] == '/' };
        tops[n - 1].files++;
        tops[n - 1].bytes += list->files[i].bytes;
    }
    qsort(tops, n, sizeof *tops, by_files ? by_count : by_bytes);
    *ret = '\0';
    for (size_t i = 0; i < n && i < SHOWN && used < cap; i++) {
        const int shown = tops[i].length < NAME_SHOWN ? (int)tops[i].length : NAME_SHOWN;
        used += (size_t)snprintf(ret + used, cap - used, "%s'%.*s%s' (", i ? ", " : "", shown, tops[i].name,
                                 tops[i].is_folder ? "/" : "");
        if (used < cap)
            used += by_files ? (size_t)snprintf(ret + used, cap - used, "%zu files)", tops[i].files)
                             : (size_t)snprintf(ret + used, cap - used, "%.1f MiB)", (double)tops[i].bytes / (1 << 20));
    }
}

static status_t refuse_count(struct code_list *list, struct err *e) {
    char largest[200];
    qsort(list->files, list->n, sizeof *list->files, by_path);
    code_list_largest(list, true, largest, sizeof largest);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "more than %d files; of the first ones most are in %s: leave out what is not code in " IGNORE_FILE,
                   LIMIT_CODE_FILES, largest);
}

/* ---- names ---- */

static status_t add_file(struct reading *r, const char *name, const struct stat *st, struct err *e) {
    char target[PATH_MAX];
    struct code_file file = { .bytes = S_ISREG(st->st_mode) ? st->st_size : 0,
                              .executable = (st->st_mode & S_IXUSR) != 0 };
    TRY(code_name_check(name, e));
    if (S_ISLNK(st->st_mode)) {
        const ssize_t n = readlinkat(r->folder, name, target, sizeof target - 1);
        if (n < 0)
            return err_errno(e, "read the link '%.200s'", name);
        target[n] = '\0';
        TRY(code_link_check(name, target, e));
        file.target = alloc_copy_text(target);
        file.executable = false;
    } else if (!S_ISREG(st->st_mode)) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.200s' is neither a file, a folder nor a link: leave it out in " IGNORE_FILE, name);
    }
    if (r->list->n == LIMIT_CODE_FILES) {
        free(file.target);
        return refuse_count(r->list, e);
    }
    file.path = alloc_copy_text(name);
    r->list->files = alloc_grow(r->list->files, r->list->n, sizeof *r->list->files);
    r->list->files[r->list->n++] = file;
    return ST_OK;
}

static status_t walk(struct reading *r, const char *name, int depth, struct err *e);

/* A name may be gone again: git still lists a tracked file that was deleted. */
static status_t add_path(void *ctx, const char *name, struct err *e) {
    struct reading *r = ctx;
    struct stat st;
    char plain[PATH_MAX];
    size_t n = strlen(name);
    r->named = true;
    if (n >= sizeof plain)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.200s...' is too long", name);
    memcpy(plain, name, n + 1);
    while (n && plain[n - 1] == '/') /* git marks a repository within the folder so */
        plain[--n] = '\0';
    if (fstatat(r->folder, plain, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || errno == ENOTDIR ? ST_OK : err_errno(e, "'%.200s'", plain);
    if (ignore_matches(r->ignore, plain, S_ISDIR(st.st_mode)))
        return ST_OK;
    return S_ISDIR(st.st_mode) ? walk(r, plain, 0, e) : add_file(r, plain, &st, e);
}

static status_t walk_entry(struct reading *r, const char *folder, const char *entry, int depth, struct err *e) {
    char name[PATH_MAX];
    struct stat st;
    if (strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0 || strcmp(entry, ".git") == 0)
        return ST_OK;
    if (snprintf(name, sizeof name, "%s%s%s", folder, *folder ? "/" : "", entry) >= (int)sizeof name)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.200s...' is too long", folder);
    if (fstatat(r->folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? ST_OK : err_errno(e, "'%.200s'", name);
    if (ignore_matches(r->ignore, name, S_ISDIR(st.st_mode)))
        return ST_OK;
    return S_ISDIR(st.st_mode) ? walk(r, name, depth + 1, e) : add_file(r, name, &st, e);
}

static void closedirp(DIR **d) {
    if (*d)
        closedir(*d);
}

static status_t walk(struct reading *r, const char *name, int depth, struct err *e) {
    if (depth > LIMIT_CODE_DEPTH)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.200s' is more than %d folders deep", name, LIMIT_CODE_DEPTH);
    int fd = openat(r->folder, *name ? name : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    CLEANUP(closedirp) DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    if (!d)
        return err_errno(e, "list the folder '%.200s'", *name ? name : r->path);
    errno = 0;
    for (const struct dirent *entry; (entry = readdir(d)); errno = 0)
        TRY(walk_entry(r, name, entry->d_name, depth, e));
    return errno ? err_errno(e, "list the folder '%.200s'", *name ? name : r->path) : ST_OK;
}

/* ---- the list ---- */

static status_t ignore_read(int folder, struct ignore **ret, struct err *e) {
    CLEANUP(closep) int fd = openat(folder, IGNORE_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? ignore_new(NULL, ret, e) : err_errno(e, "open '" IGNORE_FILE "'");
    struct bytes text;
    bytes_init(&text, IGNORE_BYTES);
    status_t st = fd_read_file(fd, IGNORE_FILE, &text, e);
    if (st == ST_OK)
        st = ignore_new(text.data, ret, e);
    bytes_done(&text);
    return st;
}

static status_t list_fill(struct reading *r, struct err *e) {
    enum git_state state;
    TRY(git_list(r->path, add_path, r, &state, e));
    r->list->without_git = state == GIT_MISSING;
    r->list->git_has_none = state == GIT_LISTED && !r->named;
    return state == GIT_LISTED ? ST_OK : walk(r, "", 0, e);
}

/* git lists a file with conflicts once for each of its versions. */
static void drop_doubles(struct code_list *list) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (n && strcmp(list->files[n - 1].path, list->files[i].path) == 0) {
            free(list->files[i].path);
            free(list->files[i].target);
        } else {
            list->files[n++] = list->files[i];
        }
    }
    list->n = n;
}

status_t code_list_read(int folder, const char *path, struct code_list **ret, struct err *e) {
    CLEANUP(code_list_freep) struct code_list *list = alloc_zeroed(1, sizeof *list);
    CLEANUP(ignore_freep) struct ignore *ignore = NULL;
    TRY(ignore_read(folder, &ignore, e));
    struct reading r = { folder, path, ignore, list, false };
    TRY(list_fill(&r, e));
    if (list->n)
        qsort(list->files, list->n, sizeof *list->files, by_path);
    drop_doubles(list);
    *ret = take_ptr(&list);
    return ST_OK;
}

const struct code_file *code_list_find(const struct code_list *list, const char *path) {
    const struct code_file key = { .path = (char *)(uintptr_t)path };
    return list->n ? bsearch(&key, list->files, list->n, sizeof *list->files, by_path) : NULL;
}
