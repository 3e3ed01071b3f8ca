/* Lists the image files of a folder.
 *
 * A folder is listed completely, its names are sorted, and then files are added and subfolders are visited in this
 * order. The sort is necessary because readdir(3) has no defined order, and the order determines the number of each
 * image. Folders are opened relative to the open root folder (data_open_below), so a path cannot leave it.
 *
 * Arrays grow by doubling: an array whose length is a power of two is full. image_files_split moves file i if
 * i * fraction and (i + 1) * fraction have different integer parts, so the moved files are evenly spread. */
#include "engine/data/image_files.h"

#include "base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH = 16 };

struct image_files *image_files_free(struct image_files *f) {
    if (!f)
        return NULL;
    for (int64_t i = 0; i < f->n; i++)
        free(f->files[i].path);
    for (int i = 0; f->classes && i < f->n_classes; i++)
        free(f->classes[i]);
    for (int i = 0; i < f->n_archives; i++)
        free(f->archives[i].path);
    closep(&f->at.fd);
    free(f->archives);
    free(f->files);
    free(f->classes);
    free(f);
    return NULL;
}

size_t image_files_bytes(const struct image_files *f) {
    enum { HEAP_BLOCK = 24 }; /* what malloc adds to a name: its own head, and the rest of the last 16 bytes */
    size_t bytes = (size_t)f->n * sizeof *f->files;
    for (int64_t i = 0; i < f->n; i++)
        bytes += f->files[i].path
                     ? (size_t)(f->files[i].name - f->files[i].path) + strlen(f->files[i].name) + HEAP_BLOCK
                     : 0;
    for (int i = 0; i < f->n_archives; i++)
        bytes += sizeof *f->archives + (size_t)(f->archives[i].name - f->archives[i].path) +
                 strlen(f->archives[i].name) + HEAP_BLOCK;
    return bytes;
}

status_t image_files_open(const struct image_files *f, int64_t i, struct data_file *ret, int64_t *ret_offset,
                          int64_t *ret_bytes, struct err *e) {
    const struct image_file *file = &f->files[i];
    const char *path = file->path ? file->path : f->archives[file->archive].path;
    TRY(f->at.fd >= 0 ? data_file_open_below(ret, "image", &f->at, file->name, path, e)
                      : data_file_open(ret, file->path ? "image" : "tar archive", f->at.roots, path, e));
    *ret_offset = file->path ? 0 : file->offset;
    *ret_bytes = file->path ? ret->bytes : file->bytes;
    return ST_OK;
}

const char *image_files_name(const struct image_files *f, int64_t i, char ret[IMAGE_NAME_BYTES]) {
    const struct image_file *file = &f->files[i];
    if (file->path)
        snprintf(ret, IMAGE_NAME_BYTES, "the image '%.450s'", file->path);
    else
        snprintf(ret, IMAGE_NAME_BYTES, "the image at byte %lld of '%.400s'", (long long)file->offset,
                 f->archives[file->archive].path);
    return ret;
}

bool image_files_is_image(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

struct listing {
    char **names;
    size_t n;
};

static void listing_done(struct listing *l) {
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
}

static void add_name(struct listing *l, const char *name) {
    if ((l->n & (l->n - 1)) == 0) /* full */
        l->names = alloc_resize(l->names, l->n ? 2 * l->n : 1, sizeof *l->names);
    l->names[l->n++] = alloc_copy_text(name);
}

/* The names in a folder inside f, sorted. name: relative to f, "" = f itself. */
static status_t list(const struct image_files *f, const char *name, const char *path, struct listing *ret,
                     struct err *e) {
    int fd = -1;
    status_t st = data_open_below(&f->at, name, O_RDONLY | O_DIRECTORY, path, &fd, e);
    if (st != ST_OK)
        return st;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        st = err_unreadable(e, "read the folder '%s'", path);
        close(fd);
        return st;
    }
    errno = 0;
    for (const struct dirent *entry; (entry = readdir(dir)); errno = 0)
        if (entry->d_name[0] != '.')
            add_name(ret, entry->d_name);
    if (errno)
        st = err_unreadable(e, "read the folder '%s'", path);
    closedir(dir);
    if (ret->n)
        qsort(ret->names, ret->n, sizeof *ret->names, by_bytes);
    return st;
}

/* Opens a folder, with an empty list of files. */
static status_t image_files_new(const struct roots *roots, const char *path, struct image_files **ret, struct err *e) {
    struct image_files *f = alloc_zeroed(1, sizeof *f);
    f->at.roots = roots;
    status_t st = roots_open(roots, path, O_RDONLY | O_DIRECTORY, &f->at.fd, e);
    if (st != ST_OK) {
        free(f);
        return st;
    }
    *ret = f;
    return ST_OK;
}

static status_t stat_below(const struct image_files *f, const char *name, const char *path, struct stat *ret,
                           struct err *e) {
    CLEANUP(closep) int fd = -1;
    TRY(data_open_below(&f->at, name, O_PATH, path, &fd, e));
    return fstat(fd, ret) == 0 ? ST_OK : err_unreadable(e, "stat '%s'", path);
}

void image_files_add(struct image_files *f, const struct image_file *file) {
    if ((f->n & (f->n - 1)) == 0) /* full */
        f->files = alloc_resize(f->files, (size_t)(f->n ? 2 * f->n : 1), sizeof *f->files);
    f->files[f->n++] = *file;
}

static void add_file(struct image_files *f, const char *path, size_t root, int64_t bytes, int label) {
    char *copy = alloc_copy_text(path);
    const struct image_file file = { .path = copy, .name = copy + root, .bytes = bytes, .label = label };
    image_files_add(f, &file);
}

/* Adds the files of a folder, and of its subfolders down to `depth` levels. root: the index at which names begin in a
 * path. */
static status_t add_folder(struct image_files *f, const char *path, size_t root, int label, int depth, struct err *e) {
    CLEANUP(listing_done) struct listing l = { 0 };
    TRY(list(f, strlen(path) < root ? "" : path + root, path, &l, e));
    for (size_t i = 0; i < l.n; i++) {
        CLEANUP(freep) char *below = alloc_format("%s/%s", path, l.names[i]);
        struct stat st;
        TRY(stat_below(f, below + root, below, &st, e));
        if (S_ISREG(st.st_mode) && image_files_is_image(below))
            add_file(f, below, root, st.st_size, label);
        else if (S_ISDIR(st.st_mode) && depth > 0)
            TRY(add_folder(f, below, root, label, depth - 1, e));
    }
    return ST_OK;
}

int image_files_class(const struct image_files *f, const char *name) {
    for (int i = 0; f->classes && i < f->n_classes; i++)
        if (strcmp(f->classes[i], name) == 0)
            return i;
    return -1;
}

void image_files_add_class(struct image_files *f, const char *name) {
    f->classes = alloc_resize(f->classes, (size_t)f->n_classes + 1, sizeof *f->classes);
    f->classes[f->n_classes++] = alloc_copy_text(name);
}

static status_t add_class(struct image_files *f, const char *path, const char *name, const struct image_files *known,
                          struct err *e) {
    CLEANUP(freep) char *below = alloc_format("%s/%s", path, name);
    struct stat st;
    TRY(stat_below(f, name, below, &st, e));
    if (!S_ISDIR(st.st_mode))
        return ST_OK;
    int label = known ? image_files_class(known, name) : f->n_classes;
    if (label < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the folder '%s' is a class that the training data does not have",
                       below);
    if (!known)
        image_files_add_class(f, name);
    int64_t before = f->n;
    TRY(add_folder(f, below, strlen(path) + 1, label, 0, e));
    if (f->n == before)
        return err_set(e, ST_INVALID_ARGUMENT, "the folder '%s' is a class without a PNG or JPEG file", below);
    return ST_OK;
}

static void copy_classes(struct image_files *to, const struct image_files *from) {
    if (!from->classes)
        to->n_classes = from->n_classes;
    for (int i = 0; from->classes && i < from->n_classes; i++)
        image_files_add_class(to, from->classes[i]);
}

status_t image_files_of_classes(const struct roots *roots, const char *path, const struct image_files *known,
                                struct image_files **ret, struct err *e) {
    CLEANUP(image_files_freep) struct image_files *f = NULL;
    CLEANUP(listing_done) struct listing l = { 0 };
    TRY(image_files_new(roots, path, &f, e));
    TRY(list(f, "", path, &l, e));
    for (size_t i = 0; i < l.n; i++)
        TRY(add_class(f, path, l.names[i], known, e));
    if (f->n == 0)
        return err_set(e, ST_NOT_FOUND, "the folder '%s' has no folder of images: each folder in it is a class", path);
    if (known)
        copy_classes(f, known);
    *ret = take_ptr(&f);
    return ST_OK;
}

status_t image_files_search(const struct roots *roots, const char *path, struct image_files **ret, struct err *e) {
    CLEANUP(image_files_freep) struct image_files *f = NULL;
    TRY(image_files_new(roots, path, &f, e));
    TRY(add_folder(f, path, strlen(path) + 1, 0, DEPTH, e));
    if (f->n == 0)
        return err_set(e, ST_NOT_FOUND, "the folder '%s' has no PNG or JPEG file in it", path);
    *ret = take_ptr(&f);
    return ST_OK;
}

/* The path and the name in one allocation. */
struct image_archive image_archive_of(const char *path, const char *name) {
    const size_t at = strlen(path) + 1;
    char *both = alloc_zeroed(at + strlen(name) + 1, 1);
    memcpy(both, path, at);
    memcpy(both + at, name, strlen(name));
    return (struct image_archive){ .path = both, .name = both + at };
}

static void copy_archives(struct image_files *to, const struct image_files *from) {
    to->archives = alloc_zeroed((size_t)from->n_archives + 1, sizeof *to->archives);
    for (int i = 0; i < from->n_archives; i++) {
        const struct image_archive *a = &from->archives[i];
        to->archives[to->n_archives++] = image_archive_of(a->path, a->name);
    }
}

status_t image_files_split(struct image_files *f, double fraction, struct image_files **ret, struct err *e) {
    CLEANUP(image_files_freep) struct image_files *out = alloc_zeroed(1, sizeof *out);
    out->at = (struct data_folder){ .roots = f->at.roots, .fd = -1 };
    out->files = alloc_zeroed((size_t)f->n + 1, sizeof *out->files);
    if (f->at.fd >= 0 && (out->at.fd = fcntl(f->at.fd, F_DUPFD_CLOEXEC, 0)) < 0)
        return err_errno(e, "open a folder again");
    copy_classes(out, f);
    copy_archives(out, f);
    int64_t remaining = 0;
    for (int64_t i = 0; i < f->n; i++) {
        bool selected = floor((double)(i + 1) * fraction) > floor((double)i * fraction);
        struct image_file *to = selected ? &out->files[out->n++] : &f->files[remaining++];
        *to = f->files[i];
    }
    f->n = remaining;
    *ret = take_ptr(&out);
    return ST_OK;
}
