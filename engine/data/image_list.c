/* The names of the files decide: archives are listed by image_archives.c; of images the last two parts of each name are
 * its class and its name, by which all are sorted. Two patterns may match files of one class and name in different
 * folders: the whole names decide then. */
#include "engine/data/image_files.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 200 };

struct entry {
    const struct member_file *file;
    const char *class, *name; /* of the folder, and of the file in it */
    size_t class_bytes;
};

static bool is_archive(const char *name) {
    const size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".tar") == 0;
}

/* Behind the host, the bucket or the repository of a URI. */
static const char *path_of(const char *name) {
    const char *scheme = strstr(name, "://");
    const char *slash = scheme ? strchr(scheme + 3, '/') : NULL;
    return slash ? slash : name;
}

static status_t entry_of(const struct member_file *file, bool classes, struct entry *ret, struct err *e) {
    const char *path = path_of(file->name), *slash = strrchr(path, '/');
    if (!image_files_is_image(file->name))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.*s' is no image by its name: images end with .png, .jpg or .jpeg, and all files of a list "
                       "are either images or .tar archives",
                       SHOWN, file->name);
    *ret = (struct entry){ .file = file, .class = "", .name = slash ? slash + 1 : path };
    if (!classes)
        return ST_OK;
    const char *begin = slash;
    while (begin && begin > path && begin[-1] != '/')
        begin--;
    if (!begin || begin == slash)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' is in no folder, and the folder of an image is its class", SHOWN,
                       file->name);
    ret->class = begin;
    ret->class_bytes = (size_t)(slash - begin);
    return ST_OK;
}

static int compare_class(const struct entry *x, const struct entry *y) {
    const size_t n = x->class_bytes < y->class_bytes ? x->class_bytes : y->class_bytes;
    const int order = memcmp(x->class, y->class, n);
    return order ? order : (x->class_bytes > y->class_bytes) - (x->class_bytes < y->class_bytes);
}

static int by_class(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int order = compare_class(x, y);
    order = order ? order : strcmp(x->name, y->name);
    return order ? order : strcmp(x->file->name, y->file->name);
}

/* Without classes the whole names decide. */
static int by_name(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return strcmp(x->file->name, y->file->name);
}

static status_t label_of(struct image_files *f, const struct entry *entry, const struct image_files *known,
                         int32_t *ret, struct err *e) {
    CLEANUP(freep) char *class = alloc_format("%.*s", (int)entry->class_bytes, entry->class);
    if (known) {
        *ret = image_files_class(known, class);
        return *ret >= 0 ? ST_OK
                         : err_set(e, ST_INVALID_ARGUMENT,
                                   "'%.*s' is in the folder of a class that the training data do not have", SHOWN,
                                   entry->file->name);
    }
    if (f->n_classes == 0 || strcmp(f->classes[f->n_classes - 1], class) != 0) /* sorted */
        image_files_add_class(f, class);
    *ret = f->n_classes - 1;
    return ST_OK;
}

/* name: "cat/1.png", as in a folder of folders. */
static status_t add(struct image_files *f, const struct entry *entry, bool classes, const struct image_files *known,
                    struct err *e) {
    struct data_file open;
    struct image_file file = { .path = NULL };
    if (classes)
        TRY(label_of(f, entry, known, &file.label, e));
    status_t st = data_file_open(&open, "image", f->at.roots, entry->file->path, e);
    file.bytes = open.bytes;
    data_file_close(&open);
    TRY(st);
    CLEANUP(freep)
    char *name = alloc_format("%.*s%s%s", (int)entry->class_bytes, entry->class, entry->class_bytes ? "/" : "",
                              entry->name);
    const struct image_archive both = image_archive_of(entry->file->path, name);
    file.path = both.path;
    file.name = both.name;
    image_files_add(f, &file);
    return ST_OK;
}

static status_t add_all(struct image_files *f, const struct entry *entries, int n, bool classes,
                        const struct image_files *known, void (*progress)(void *), void *ctx, struct err *e) {
    for (int i = 0; i < n; i++) {
        TRY(add(f, &entries[i], classes, known, e));
        if (progress && i % 1024 == 0)
            progress(ctx);
    }
    return ST_OK;
}

static status_t images_list(struct image_files *f, const struct member_files *list, bool classes,
                            const struct image_files *known, void (*progress)(void *), void *ctx, struct err *e) {
    CLEANUP(freep) struct entry *entries = alloc_zeroed((size_t)list->n, sizeof *entries);
    for (int i = 0; i < list->n; i++)
        TRY(entry_of(&list->files[i], classes, &entries[i], e));
    qsort(entries, (size_t)list->n, sizeof *entries, classes ? by_class : by_name);
    return add_all(f, entries, list->n, classes, known, progress, ctx, e);
}

status_t image_files_of_list(const struct roots *roots, const struct member_files *list, bool classes,
                             const struct image_files *known, void (*progress)(void *), void *ctx,
                             struct image_files **ret, struct err *e) {
    CLEANUP(image_files_freep) struct image_files *f = alloc_zeroed(1, sizeof *f);
    f->at = (struct data_folder){ .roots = roots, .fd = -1 };
    TRY((is_archive(list->files[0].name) ? image_archives_list : images_list)(f, list, classes, known, progress, ctx,
                                                                              e));
    if (known && known->classes && !f->classes)
        for (int i = 0; i < known->n_classes; i++)
            image_files_add_class(f, known->classes[i]);
    *ret = take_ptr(&f);
    return ST_OK;
}
