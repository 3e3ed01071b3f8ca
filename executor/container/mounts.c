/* The list of mounts:
 *
 *   1. each folder of the caller by its real path; and by the given one, if no other mount shows it there already
 *   2. the image's own folder, read-only, if it lies in one that can be written, such as the host's /dev/shm
 *   3. sorted by the length of the target, so that a folder is mounted before what lies in it
 *   4. a target that lies in another mount exists there, since both have the host's paths. Every other target is made
 *      below `points`; one below /tmp, which is no folder of the host, in the folder that becomes /tmp
 *
 * Readable are all entries of the image beside the paths to mounts: as in executor/sandbox/file_rules.c, what is
 * granted for a folder cannot be taken away for what is mounted in it. */
#include "executor/container/mounts.h"

#include "base/alloc.h"
#include "base/file.h"
#include "executor/container/gpu_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char TEMPORARY[] = "/tmp";

/* Of the host, at the same paths. */
static const struct {
    const char *path;
    bool writable, readable;
} HOST[] = {
    { "/proc", true, true }, /* no right is gained: the kernel decides about each of its files */
    { "/sys", false, true },       { "/dev/null", true, false },   { "/dev/zero", true, false },
    { "/dev/full", true, false },  { "/dev/random", true, false }, { "/dev/urandom", true, false },
    { "/dev/tty", true, false },   { "/dev/ptmx", true, false },   { "/dev/pts", true, false },
    { "/dev/shm", true, false },   { "/dev/mqueue", true, false }, { "/etc/resolv.conf", false, true },
    { "/etc/hosts", false, true },
};
static const char *const GPU_DEVICES[] = { "/dev/nvidia*", "/dev/infiniband", "/dev/gdrdrv" };
static const struct {
    const char *path, *to;
} LINKS[] = { { "dev/fd", "/proc/self/fd" },
              { "dev/stdin", "/proc/self/fd/0" },
              { "dev/stdout", "/proc/self/fd/1" },
              { "dev/stderr", "/proc/self/fd/2" } };

static bool is_within(const char *path, const char *folder) {
    const size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || !path[n]);
}

static bool is_below(const char *path, const char *folder) {
    return is_within(path, folder) && strcmp(path, folder) != 0;
}

/* ---- the list ---- */

static struct mounted *find(const struct mounts *m, const char *target) {
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->all[i].target, target) == 0)
            return &m->all[i];
    return NULL;
}

/* Of two mounts at one place, one that can be written counts. */
static struct mounted *add(struct mounts *m, const char *source, const char *target, bool writable) {
    struct mounted *known = find(m, target);
    if (known) {
        known->writable |= writable;
        return known;
    }
    m->all = alloc_grow(m->all, m->n, sizeof *m->all);
    m->all[m->n] = (struct mounted){ .source = alloc_copy_text(source),
                                     .target = alloc_copy_text(target),
                                     .writable = writable };
    return &m->all[m->n++];
}

/* Whether another mount shows the host's file of this path at this path. */
static bool is_shown(const struct mounts *m, const char *target) {
    for (size_t i = 0; i < m->n; i++)
        if (is_within(target, m->all[i].target) && !m->all[i].temporary)
            return true;
    return false;
}

/* Whether the path is below a folder of the host that every container has. */
static bool is_of_host(const char *path) {
    for (size_t i = 0; i < sizeof HOST / sizeof *HOST; i++)
        if (is_below(path, HOST[i].path))
            return true;
    return false;
}

static void add_devices(struct mounts *m, const char *pattern) {
    glob_t found = { 0 };
    const int globbed = glob(pattern, 0, NULL, &found);
    for (size_t i = 0; globbed == 0 && i < found.gl_pathc; i++)
        add(m, found.gl_pathv[i], found.gl_pathv[i], true);
    globfree(&found);
}

static void add_gpu_files(struct mounts *m, const char *folders) {
    struct gpu_files files;
    gpu_files_find(folders, &files);
    for (size_t i = 0; i < files.n; i++)
        add(m, files.all[i].source, files.all[i].target, false)->readable = true;
    m->gpu_problem = files.problem;
    gpu_files_done(&files);
}

static void add_host(struct mounts *m, const struct container_options *o) {
    char real[PATH_MAX];
    for (size_t i = 0; i < sizeof HOST / sizeof *HOST; i++)
        if (!is_shown(m, HOST[i].path) && realpath(HOST[i].path, real))
            add(m, real, HOST[i].path, HOST[i].writable)->readable = HOST[i].readable;
    for (size_t i = 0; o->gpus && i < sizeof GPU_DEVICES / sizeof *GPU_DEVICES; i++)
        add_devices(m, GPU_DEVICES[i]);
    if (o->gpus)
        add_gpu_files(m, o->gpu_folders);
    if (!find(m, TEMPORARY))
        add(m, o->temporary, TEMPORARY, true)->temporary = true;
}

static void add_mount(struct mounts *m, const char *real, const char *target, enum container_access access) {
    struct mounted *one = add(m, real, target, access == CONTAINER_WRITE);
    one->readable |= access == CONTAINER_PUBLIC;
}

static void add_given(struct mounts *m, const struct container_options *o) {
    char real[PATH_MAX];
    for (size_t i = 0; i < o->n_mounts; i++)
        if (realpath(o->mounts[i].path, real) && strcmp(real, "/") != 0)
            add_mount(m, real, real, o->mounts[i].access);
    for (size_t i = 0; i < o->n_mounts; i++)
        if (realpath(o->mounts[i].path, real) && strcmp(real, "/") != 0 && !is_shown(m, o->mounts[i].path) &&
            !is_of_host(o->mounts[i].path)) /* a mount there would follow a link, out of the container */
            add_mount(m, real, o->mounts[i].path, o->mounts[i].access);
}

/* Else the command could change by the host's path what it sees as its root. */
static void add_image(struct mounts *m, int image) {
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", image);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    for (size_t i = 0; i < m->n; i++)
        if (is_within(path, m->all[i].target) && m->all[i].writable && !m->all[i].temporary) {
            add(m, path, path, false)->writable = false;
            return;
        }
}

static int compare(const void *a, const void *b) {
    const char *x = ((const struct mounted *)a)->target, *y = ((const struct mounted *)b)->target;
    const size_t n = strlen(x), k = strlen(y);
    return n < k ? -1 : n > k ? 1 : strcmp(x, y);
}

/* ---- the points ---- */

static status_t file_make(const char *path, struct err *e) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0400);
    if (fd < 0)
        return err_errno(e, "make the file '%s'", path);
    close(fd);
    return ST_OK;
}

static status_t point_make(const char *folder, const char *name, bool is_folder, struct err *e) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s", folder, name) >= (int)sizeof path)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.200s' is too long for a container", name);
    if (is_folder)
        return dir_make(path, 0755, e);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    TRY(dir_make(path, 0755, e));
    *slash = '/';
    return file_make(path, e);
}

static status_t mount_point_make(const struct mounts *m, size_t i, const struct container_options *o,
                                 const char *points, struct err *e) {
    const struct mounted *one = &m->all[i];
    struct stat st;
    bool in_temporary = false;
    for (size_t k = 0; k < i; k++)
        if (is_below(one->target, m->all[k].target) && !m->all[k].temporary)
            return ST_OK; /* it exists there */
        else
            in_temporary |= is_below(one->target, m->all[k].target);
    if (stat(one->source, &st) < 0)
        return err_errno(e, "stat '%s'", one->source);
    return point_make(in_temporary ? o->temporary : points, one->target + (in_temporary ? strlen(TEMPORARY) : 0),
                      S_ISDIR(st.st_mode), e);
}

static status_t points_make(const struct mounts *m, const struct container_options *o, const char *points,
                            struct err *e) {
    for (size_t i = 0; i < m->n; i++)
        TRY(mount_point_make(m, i, o, points, e));
    for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%.4000s/%s", points, LINKS[i].path);
        if (symlink(LINKS[i].to, path) < 0)
            return err_errno(e, "make the link '%s'", path);
    }
    return ST_OK;
}

/* ---- what can be read ---- */

static bool leads_to_mount(const struct mounts *m, const char *path) {
    for (size_t i = 0; i < m->n; i++)
        if (is_below(m->all[i].target, path))
            return true;
    return false;
}

static void readable_add(struct mounts *m, const char *path) {
    m->readable = alloc_grow(m->readable, m->n_readable, sizeof *m->readable);
    m->readable[m->n_readable++] = alloc_copy_text(path);
}

/* folder: of the image, an own descriptor. path: "" for the root. An image may have a file or a link where a mount
 * needs a folder; then it is not seen. */
static void walk(struct mounts *m, int folder, const char *path) {
    DIR *d = folder >= 0 ? fdopendir(folder) : NULL;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char below[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || entry->d_type == DT_LNK ||
            snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= (int)sizeof below ||
            strcmp(below, "/dev") == 0 || find(m, below))
            continue;
        if (!leads_to_mount(m, below))
            readable_add(m, below);
        else
            walk(m, openat(dirfd(d), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), below);
    }
    if (d)
        closedir(d);
    else if (folder >= 0)
        close(folder);
}

status_t mounts_make(const struct container_options *o, const char *points, const char *root, struct mounts *ret,
                     struct err *e) {
    add_given(ret, o);
    add_host(ret, o);
    add_image(ret, o->root);
    qsort(ret->all, ret->n, sizeof *ret->all, compare);
    for (size_t i = 0; i < ret->n; i++) {
        ret->all[i].at = alloc_format("%s%s", root, ret->all[i].target);
        if (ret->all[i].readable)
            readable_add(ret, ret->all[i].target);
    }
    walk(ret, openat(o->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "");
    return points_make(ret, o, points, e);
}

void mounts_done(struct mounts *m) {
    for (size_t i = 0; i < m->n; i++) {
        free(m->all[i].source);
        free(m->all[i].target);
        free(m->all[i].at);
    }
    for (size_t i = 0; i < m->n_readable; i++)
        free(m->readable[i]);
    free(m->all);
    free(m->readable);
    *m = (struct mounts){ 0 };
}
