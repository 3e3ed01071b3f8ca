#include "executor/engine/data/folder.h"

#include "executor/engine/data/data_file.h"

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

struct folder *folder_free(struct folder *f) {
    if (!f)
        return NULL;
    for (int64_t i = 0; i < f->n; i++)
        free(f->files[i].path);
    for (int i = 0; i < f->n_classes; i++)
        free(f->classes[i]);
    if (f->fd >= 0)
        close(f->fd);
    free(f->files);
    free(f->classes);
    free(f);
    return NULL;
}

static bool is_image_name(const char *name) {
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

static status_t add_name(struct listing *l, const char *name, struct err *e) {
    if ((l->n & (l->n - 1)) == 0) { /* a power of two is full */
        char **names = realloc(l->names, (l->n ? 2 * l->n : 1) * sizeof *names);
        if (!names)
            return err_errno(e, "allocate the names of a folder");
        l->names = names;
    }
    if (!(l->names[l->n] = strdup(name)))
        return err_errno(e, "allocate a file name");
    l->n++;
    return ST_OK;
}

/* The names in a folder below f, sorted. name: within f, "" = f itself. */
static status_t list(const struct folder *f, const char *name, const char *path, struct listing *ret, struct err *e) {
    int fd = -1;
    status_t st = data_open_below(f->fd, name, O_RDONLY | O_DIRECTORY, path, &fd, e);
    if (st != ST_OK)
        return st;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        st = err_errno(e, "read the folder '%s'", path);
        close(fd);
        return st;
    }
    errno = 0;
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(dir)); errno = 0)
        if (entry->d_name[0] != '.')
            st = add_name(ret, entry->d_name, e);
    if (st == ST_OK && errno)
        st = err_errno(e, "read the folder '%s'", path);
    closedir(dir);
    if (ret->n)
        qsort(ret->names, ret->n, sizeof *ret->names, by_bytes);
    return st;
}

/* A new folder, open, without files. */
static status_t folder_new(const char *path, struct folder **ret, struct err *e) {
    struct folder *f = calloc(1, sizeof *f);
    if (!f)
        return err_errno(e, "allocate a folder");
    if ((f->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        status_t st = err_errno(e, "read the folder '%s'", path);
        free(f);
        return st;
    }
    *ret = f;
    return ST_OK;
}

static status_t stat_below(const struct folder *f, const char *name, const char *path, struct stat *ret,
                           struct err *e) {
    CLEANUP(closep) int fd = -1;
    TRY(data_open_below(f->fd, name, O_PATH, path, &fd, e));
    return fstat(fd, ret) == 0 ? ST_OK : err_errno(e, "stat '%s'", path);
}

static status_t add_file(struct folder *f, const char *path, size_t root, int64_t bytes, int label, struct err *e) {
    if ((f->n & (f->n - 1)) == 0) { /* a power of two is full */
        struct folder_file *files = realloc(f->files, (size_t)(f->n ? 2 * f->n : 1) * sizeof *files);
        if (!files)
            return err_errno(e, "allocate the names of %lld files", (long long)f->n);
        f->files = files;
    }
    char *copy = strdup(path);
    if (!copy)
        return err_errno(e, "allocate a file name");
    f->files[f->n++] = (struct folder_file){ copy, copy + root, bytes, label };
    return ST_OK;
}

/* The files of one folder; depth > 0 = and of those in it. root: where names begin in a path. */
static status_t add_folder(struct folder *f, const char *path, size_t root, int label, int depth, struct err *e) {
    CLEANUP(listing_done) struct listing l = { 0 };
    TRY(list(f, strlen(path) < root ? "" : path + root, path, &l, e));
    for (size_t i = 0; i < l.n; i++) {
        CLEANUP(freep) char *below = NULL;
        struct stat st;
        if (asprintf(&below, "%s/%s", path, l.names[i]) < 0)
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a file name");
        TRY(stat_below(f, below + root, below, &st, e));
        if (S_ISREG(st.st_mode) && is_image_name(below))
            TRY(add_file(f, below, root, st.st_size, label, e));
        else if (S_ISDIR(st.st_mode) && depth > 0)
            TRY(add_folder(f, below, root, label, depth - 1, e));
    }
    return ST_OK;
}

static int class_of(const struct folder *f, const char *name) {
    for (int i = 0; i < f->n_classes; i++)
        if (strcmp(f->classes[i], name) == 0)
            return i;
    return -1;
}

static status_t add_class_name(struct folder *f, const char *name, struct err *e) {
    char **classes = realloc(f->classes, ((size_t)f->n_classes + 1) * sizeof *classes);
    if (!classes)
        return err_errno(e, "allocate a class");
    f->classes = classes;
    if (!(classes[f->n_classes] = strdup(name)))
        return err_errno(e, "allocate a class");
    f->n_classes++;
    return ST_OK;
}

static status_t add_class(struct folder *f, const char *path, const char *name, const struct folder *known,
                          struct err *e) {
    CLEANUP(freep) char *below = NULL;
    struct stat st;
    if (asprintf(&below, "%s/%s", path, name) < 0)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a file name");
    TRY(stat_below(f, name, below, &st, e));
    if (!S_ISDIR(st.st_mode))
        return ST_OK;
    int label = known ? class_of(known, name) : f->n_classes;
    if (label < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the folder '%s' is a class that the training data lacks", below);
    if (!known)
        TRY(add_class_name(f, name, e));
    int64_t before = f->n;
    TRY(add_folder(f, below, strlen(path) + 1, label, 0, e));
    if (f->n == before)
        return err_set(e, ST_INVALID_ARGUMENT, "the folder '%s' is a class without a PNG or JPEG file", below);
    return ST_OK;
}

static status_t copy_classes(struct folder *to, const struct folder *from, struct err *e) {
    for (int i = 0; i < from->n_classes; i++)
        TRY(add_class_name(to, from->classes[i], e));
    return ST_OK;
}

status_t folder_classes(const char *path, const struct folder *known, struct folder **ret, struct err *e) {
    CLEANUP(folder_freep) struct folder *f = NULL;
    CLEANUP(listing_done) struct listing l = { 0 };
    TRY(folder_new(path, &f, e));
    TRY(list(f, "", path, &l, e));
    for (size_t i = 0; i < l.n; i++)
        TRY(add_class(f, path, l.names[i], known, e));
    if (f->n == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the folder '%s' has no folder of images: each one is a class", path);
    if (known)
        TRY(copy_classes(f, known, e));
    *ret = take_ptr(&f);
    return ST_OK;
}

status_t folder_search(const char *path, struct folder **ret, struct err *e) {
    CLEANUP(folder_freep) struct folder *f = NULL;
    TRY(folder_new(path, &f, e));
    TRY(add_folder(f, path, strlen(path) + 1, 0, DEPTH, e));
    if (f->n == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the folder '%s' has no PNG or JPEG file in it", path);
    *ret = take_ptr(&f);
    return ST_OK;
}

status_t folder_split(struct folder *f, double fraction, struct folder **ret, struct err *e) {
    CLEANUP(folder_freep) struct folder *out = calloc(1, sizeof *out);
    if (!out)
        return err_errno(e, "allocate a folder");
    if ((out->fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0)) < 0 ||
        !(out->files = calloc((size_t)f->n + 1, sizeof *out->files)))
        return err_errno(e, "allocate a folder");
    TRY(copy_classes(out, f, e));
    int64_t kept = 0;
    for (int64_t i = 0; i < f->n; i++) {
        bool turn = floor((double)(i + 1) * fraction) > floor((double)i * fraction);
        struct folder_file *to = turn ? &out->files[out->n++] : &f->files[kept++];
        *to = f->files[i];
    }
    f->n = kept;
    *ret = take_ptr(&out);
    return ST_OK;
}
