/* A pattern is matched part by part: a part without special characters is added to the path as it is, and of any other
 * the folder that the path names is listed. Only files match the last part; only folders are descended into. The text
 * of the URI is decoded part by part, so that a decoded character is never special. */
#include "executor/worker/config_pattern.h"

#include "api/spec/data_uri.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/roots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEVELS_MAX = 16 };

struct match {
    const char *uri;
    const struct roots *roots;
    struct matched_paths *found;
};

void matched_paths_done(struct matched_paths *paths) {
    for (size_t i = 0; i < paths->n; i++)
        free(paths->all[i]);
    free(paths->all);
    *paths = (struct matched_paths){ 0 };
}

static status_t add(const struct match *m, const char *path, struct err *e) {
    if (m->found->n == LIMIT_DATA_OBJECTS)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "'%.300s' matches more than %d files", m->uri, LIMIT_DATA_OBJECTS);
    m->found->all = alloc_grow(m->found->all, m->found->n, sizeof *m->found->all);
    m->found->all[m->found->n++] = alloc_copy_text(path);
    return ST_OK;
}

/* A link is opened later, by the rules of the roots. */
static bool is_kind(int folder, const struct dirent *entry, bool last) {
    struct stat st;
    if (fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    return S_ISLNK(st.st_mode) || (last ? S_ISREG(st.st_mode) : S_ISDIR(st.st_mode));
}

static status_t parts_match(const struct match *m, const char *path, const char *rest, struct err *e);

static status_t entries_match(const struct match *m, const char *path, const char *part, size_t n, DIR *dir,
                              struct err *e) {
    char pattern[2 * NAME_MAX + 2], next[PATH_MAX];
    const bool last = part[n] == '\0';
    if (!data_uri_part_pattern(part, n, pattern, sizeof pattern))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.300s' is too long or has an incomplete %%XX", m->uri);
    errno = 0;
    for (const struct dirent *entry; (entry = readdir(dir)); errno = 0) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fnmatch(pattern, entry->d_name, FNM_PATHNAME) != 0 || !is_kind(dirfd(dir), entry, last))
            continue;
        if (snprintf(next, sizeof next, "%s/%s", path, entry->d_name) >= (int)sizeof next)
            return err_set(e, ST_INVALID_ARGUMENT, "'%.300s' matches a path that is too long", m->uri);
        TRY(parts_match(m, next, part + n, e));
    }
    return errno ? err_errno(e, "list '%s'", path) : ST_OK;
}

static status_t folder_match(const struct match *m, const char *path, const char *part, size_t n, struct err *e) {
    CLEANUP(closep) int fd = -1;
    const char *folder = *path ? path : "/";
    TRY(roots_open(m->roots, folder, O_RDONLY | O_DIRECTORY | O_NONBLOCK, &fd, e));
    DIR *dir = fdopendir(fd);
    if (!dir)
        return err_errno(e, "list '%s'", folder);
    fd = -1; /* the stream closes it */
    status_t st = entries_match(m, path, part, n, dir, e);
    closedir(dir);
    return st;
}

/* Appends a part without special characters, decoded. */
static status_t part_append(const struct match *m, char path[PATH_MAX], const char *part, size_t n, struct err *e) {
    char uri[PATH_MAX + 16], decoded[PATH_MAX];
    const size_t used = strlen(path);
    snprintf(uri, sizeof uri, "file:///%.*s", (int)n, part);
    TRY(spec_uri_path(uri, decoded, sizeof decoded, e));
    if (snprintf(path + used, PATH_MAX - used, "%s", decoded) >= (int)(PATH_MAX - used))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.300s' is too long", m->uri);
    return ST_OK;
}

/* rest: "" or "/part/part...". */
static status_t parts_match(const struct match *m, const char *path, const char *rest, struct err *e) {
    CLEANUP(freep) char *at = alloc_zeroed(PATH_MAX, 1);
    snprintf(at, PATH_MAX, "%s", path);
    while (*rest) {
        const char *part = rest + 1;
        const size_t n = strcspn(part, "/"), plain = strcspn(part, "*?[");
        if (plain < n)
            return folder_match(m, at, part, n, e);
        TRY(part_append(m, at, part, n, e));
        rest = part + n;
    }
    return add(m, at, e);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void sort_unique(struct matched_paths *found) {
    size_t n = 0;
    if (found->n > 1)
        qsort(found->all, found->n, sizeof *found->all, by_text);
    for (size_t i = 0; i < found->n; i++)
        if (i > 0 && strcmp(found->all[i], found->all[n - 1]) == 0)
            free(found->all[i]);
        else
            found->all[n++] = found->all[i];
    found->n = n;
}

/* Each is a level of recursion. */
static int levels_of(const char *uri) {
    int levels = 0;
    for (const char *at = uri; (at = strpbrk(at, "*?[")); at += strcspn(at, "/"))
        levels++;
    return levels;
}

status_t config_pattern_match(const char *uri, const struct roots *roots, struct matched_paths *ret, struct err *e) {
    struct matched_paths found = { 0 };
    struct data_uris uris;
    if (levels_of(uri) > LEVELS_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.300s' has more than %d parts that are patterns", uri, LEVELS_MAX);
    TRY(data_uri_expand(uri, LIMIT_DATA_OBJECTS, &uris, e));
    status_t st = ST_OK;
    for (size_t i = 0; i < uris.n && st == ST_OK; i++) {
        const struct match m = { .uri = uri, .roots = roots, .found = &found };
        st = parts_match(&m, "", uris.all[i] + sizeof "file://" - 1, e);
    }
    data_uris_free(&uris);
    if (st == ST_OK && found.n == 0)
        st = err_set(e, ST_NOT_FOUND, "no file matches '%.300s'", uri);
    if (st != ST_OK) {
        matched_paths_done(&found);
        return st;
    }
    sort_unique(&found);
    *ret = found;
    return ST_OK;
}
