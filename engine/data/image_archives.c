/* Each archive is listed once, when the data are opened: an image is found again by its place in the archive. The files
 * of a sample follow each other. A sample ends where a file of another name begins. */
#include "base/alloc.h"
#include "engine/data/image_files.h"
#include "engine/data/image_tar.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CLASS_BYTES = 32, SHOWN = 200 };

struct listing {
    struct image_files *files;
    const struct image_files *known;
    bool classes;
    const struct data_file *archive;
    void (*progress)(void *ctx);
    void *ctx;
    /* The sample that is being read. */
    char key[TAR_NAME_BYTES]; /* "" = none */
    struct image_file image;  /* bytes < 0: not yet found */
    bool has_class;
};

static status_t refuse(const struct listing *l, const char *why, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "the tar archive '%s': the sample '%.*s' %s", l->archive->path, SHOWN,
                   l->key, why);
}

static status_t end_sample(struct listing *l, struct err *e) {
    if (!*l->key)
        return ST_OK;
    if (l->image.bytes < 0)
        return refuse(l, "has no file .jpg, .jpeg or .png", e);
    if (l->classes && !l->has_class)
        return refuse(l, "has no file .cls with the number of its class", e);
    if (l->files->n == IMAGE_FILES_MAX)
        return refuse(l, "is one more than a job can have (67108864)", e);
    image_files_add(l->files, &l->image);
    if (l->progress && l->files->n % 1024 == 0)
        l->progress(l->ctx);
    return ST_OK;
}

static void begin_sample(struct listing *l, const char *name, size_t n) {
    memcpy(l->key, name, n);
    l->key[n] = '\0';
    l->image = (struct image_file){ .bytes = -1, .archive = l->files->n_archives - 1 };
    l->has_class = false;
}

static status_t take_class(struct listing *l, int64_t offset, int64_t bytes, struct err *e) {
    char text[CLASS_BYTES] = "";
    int64_t label = 0;
    if (l->has_class)
        return refuse(l, "has two files .cls", e);
    if (bytes >= (int64_t)sizeof text)
        return refuse(l, "has a file .cls that is too long to be a number", e);
    TRY(data_file_read(l->archive, offset, text, (size_t)bytes, e));
    const char *p = text;
    while (isspace((unsigned char)*p))
        p++;
    if (!isdigit((unsigned char)*p))
        return refuse(l, "has a file .cls that is no number from 0", e);
    for (; isdigit((unsigned char)*p) && label < IMAGE_CLASSES_MAX; p++)
        label = label * 10 + (*p - '0');
    while (isspace((unsigned char)*p))
        p++;
    if (label >= IMAGE_CLASSES_MAX || p != text + bytes)
        return refuse(l, "has a file .cls that is no number from 0 to 1048575", e);
    if (l->known && label >= l->known->n_classes)
        return refuse(l, "has a class that the training data do not have", e);
    l->image.label = (int32_t)label;
    l->has_class = true;
    if (label >= l->files->n_classes)
        l->files->n_classes = (int)label + 1;
    return ST_OK;
}

static bool is_extension(const char *extension) {
    return strcasecmp(extension, "jpg") == 0 || strcasecmp(extension, "jpeg") == 0 || strcasecmp(extension, "png") == 0;
}

static status_t found(void *ctx, const char *name, int64_t offset, int64_t bytes, struct err *e) {
    struct listing *l = ctx;
    const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash : name, '.');
    const size_t n = dot ? (size_t)(dot - name) : strlen(name);
    if (!dot || n == 0 || dot[-1] == '/') /* a hidden file */
        return ST_OK;
    if (strlen(l->key) != n || memcmp(l->key, name, n) != 0) {
        TRY(end_sample(l, e));
        begin_sample(l, name, n);
    }
    if (strcmp(dot + 1, "cls") == 0)
        return l->classes ? take_class(l, offset, bytes, e) : ST_OK;
    if (!is_extension(dot + 1))
        return ST_OK;
    if (l->image.bytes >= 0)
        return refuse(l, "has two images", e);
    l->image.offset = offset;
    l->image.bytes = bytes;
    return ST_OK;
}

static const char *last_part(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static status_t list_one(struct listing *l, const struct member_file *file, struct err *e) {
    struct image_files *f = l->files;
    const size_t n = strlen(file->name);
    struct data_file archive;
    if (n <= 4 || strcmp(file->name + n - 4, ".tar") != 0)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.*s' is no .tar archive by its name: all files of a list are either images or .tar archives",
                       SHOWN, file->name);
    f->archives = alloc_grow(f->archives, (size_t)f->n_archives, sizeof *f->archives);
    f->archives[f->n_archives++] = image_archive_of(file->path, last_part(file->name));
    const int64_t before = f->n;
    *l->key = '\0';
    status_t st = data_file_open(&archive, "tar archive", f->at.roots, file->path, e);
    l->archive = &archive;
    if (st == ST_OK)
        st = tar_list(&archive, found, l, e);
    if (st == ST_OK)
        st = end_sample(l, e);
    if (st == ST_OK && f->n == before)
        st = err_set(e, ST_INVALID_ARGUMENT, "the tar archive '%s' has no sample", archive.path);
    data_file_close(&archive);
    return st;
}

static int by_name(const void *a, const void *b) {
    const struct member_file *x = *(const struct member_file *const *)a, *y = *(const struct member_file *const *)b;
    const int order = strcmp(last_part(x->name), last_part(y->name));
    return order ? order : strcmp(x->name, y->name);
}

status_t image_archives_list(struct image_files *f, const struct member_files *list, bool classes,
                             const struct image_files *known, void (*progress)(void *), void *ctx, struct err *e) {
    CLEANUP(freep) const struct member_file **sorted = alloc_zeroed((size_t)list->n, sizeof(struct member_file *));
    struct listing *l = alloc_zeroed(1, sizeof *l);
    status_t st = ST_OK;
    *l = (struct listing){ .files = f, .known = known, .classes = classes, .progress = progress, .ctx = ctx };
    if (known && known->classes)
        st = err_set(e, ST_INVALID_ARGUMENT,
                     "'%.*s' has numbers of classes, and the training data have names: give archives for both, or "
                     "folders for both",
                     SHOWN, list->files[0].name);
    for (int i = 0; i < list->n; i++)
        sorted[i] = &list->files[i];
    qsort(sorted, (size_t)list->n, sizeof *sorted, by_name);
    for (int i = 0; i < list->n && st == ST_OK; i++)
        st = list_one(l, sorted[i], e);
    if (st == ST_OK && known)
        f->n_classes = known->n_classes;
    free(l);
    return st;
}
