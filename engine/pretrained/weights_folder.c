/* Opening: the index, if there is one, names the files; else it is the single file. Each file's header is parsed, and
 * its tensors are added to one list, which is sorted by name for binary search. Two tensors with the same name are an
 * error. Reading: F32 goes directly to the caller's memory; BF16 and F16 pass through a buffer of READ_ELEMENTS
 * numbers. */
#include "engine/pretrained/weights_folder.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/roots.h"
#include "engine/checkpoint/safetensors.h"
#include "kernels/cpu/element.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char SINGLE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json";

enum { INDEX_BYTES = 64 << 20, READ_ELEMENTS = 1 << 18 };

struct weights_folder {
    const struct roots *roots;
    char directory[PATH_MAX];
    char **names; /* (n_files) */
    int *fds;     /* (n_files) */
    int n_files, n_open;
    struct weights_folder_tensor *tensors; /* sorted by name */
    int n_tensors, capacity;
    uint16_t *halves; /* (READ_ELEMENTS) */
};

static void names_free(char **names, int n) {
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

struct weights_folder *weights_folder_close(struct weights_folder *f) {
    if (!f)
        return NULL;
    for (int i = 0; i < f->n_open; i++)
        close(f->fds[i]);
    for (int i = 0; i < f->n_tensors; i++)
        free(f->tensors[i].name);
    names_free(f->names, f->n_files);
    free(f->fds);
    free(f->tensors);
    free(f->halves);
    free(f);
    return NULL;
}

static status_t in_file(const struct weights_folder *f, const char *name, status_t st, struct err *e) {
    return err_prefix(e, st, "'%s/%s': ", f->directory, name);
}

/* --- the index --- */

static status_t add_name(char **names, int *n, const char *name, struct err *e) {
    for (int i = 0; i < *n; i++)
        if (strcmp(names[i], name) == 0)
            return ST_OK;
    if (*n == WEIGHTS_FOLDER_FILES)
        return err_set(e, ST_DATA_LOSS, "it names more than %d files", WEIGHTS_FOLDER_FILES);
    if (!*name || strlen(name) >= WEIGHTS_FOLDER_FILE_NAME || strchr(name, '/') || name[0] == '.')
        return err_set(e, ST_DATA_LOSS, "it names the file '%.80s', which is not a plain file name", name);
    names[(*n)++] = alloc_copy_text(name);
    return ST_OK;
}

status_t weights_folder_index_parse(const char *text, size_t n, char ***ret, int *ret_n, struct err *e) {
    json_error_t where;
    CLEANUP(json_decrefp) json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return err_set(e, ST_DATA_LOSS, "it is not valid JSON: %s", where.text);
    json_t *map = json_object_get(root, "weight_map"), *value;
    if (!json_is_object(map) || json_object_size(map) == 0)
        return err_set(e, ST_DATA_LOSS, "it has no 'weight_map'");
    char **names = alloc_zeroed(WEIGHTS_FOLDER_FILES, sizeof *names);
    int count = 0;
    status_t st = ST_OK;
    const char *key;
    json_object_foreach(map, key, value) {
        if (st == ST_OK)
            st = json_is_string(value) ? add_name(names, &count, json_string_value(value), e)
                                       : err_set(e, ST_DATA_LOSS, "the file of the tensor %.100s is not text", key);
    }
    if (st != ST_OK) {
        names_free(names, count);
        return st;
    }
    *ret = names;
    *ret_n = count;
    return ST_OK;
}

static status_t read_index(struct weights_folder *f, struct err *e) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", f->directory, INDEX);
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, INDEX_BYTES);
    TRY(roots_read(f->roots, path, &text, e));
    const status_t st = weights_folder_index_parse(text.data, text.len, &f->names, &f->n_files, e);
    return st == ST_OK ? ST_OK : in_file(f, INDEX, st, e);
}

static bool exists(const struct weights_folder *f, const char *name) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", f->directory, name);
    return roots_has(f->roots, path);
}

static status_t list_files(struct weights_folder *f, struct err *e) {
    if (exists(f, INDEX))
        return read_index(f, e);
    if (!exists(f, SINGLE))
        return err_set(e, ST_NOT_FOUND, "'%s' has neither %s nor %s%s", f->directory, SINGLE, INDEX,
                       exists(f, "pytorch_model.bin") ? "; save its pytorch_model.bin as safetensors" : "");
    f->names = alloc_zeroed(1, sizeof *f->names);
    f->names[0] = alloc_copy_text(SINGLE);
    f->n_files = 1;
    return ST_OK;
}

/* --- the files --- */

static status_t read_at(const struct weights_folder *f, int file, int64_t at, void *to, size_t n, struct err *e) {
    for (char *p = to; n;) {
        ssize_t k = pread(f->fds[file], p, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_unreadable(e, "read '%s/%s'", f->directory, f->names[file]);
        if (k == 0)
            return in_file(f, f->names[file], err_set(e, ST_DATA_LOSS, "it ends at byte %lld", (long long)at), e);
        p += k;
        at += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

static void add_tensor(struct weights_folder *f, int file, const struct safetensors *header,
                       struct safetensors_entry *entry) {
    if (f->n_tensors == f->capacity) {
        f->capacity = f->capacity ? 2 * f->capacity : 256;
        f->tensors = alloc_resize(f->tensors, (size_t)f->capacity, sizeof *f->tensors);
    }
    struct weights_folder_tensor *t = &f->tensors[f->n_tensors++];
    *t = (struct weights_folder_tensor){
        .name = entry->name, .n_dims = entry->n_dims, .file = file, .offset = header->data_first + entry->begin
    };
    entry->name = NULL; /* moved */
    memcpy(t->dtype, entry->dtype, sizeof t->dtype);
    memcpy(t->shape, entry->shape, sizeof t->shape);
}

static status_t read_header(struct weights_folder *f, int file, int64_t size, struct err *e) {
    unsigned char length[8];
    int64_t end;
    TRY(read_at(f, file, 0, length, sizeof length, e));
    TRY(safetensors_header_end(length, size, &end, e));
    CLEANUP(freep) char *text = malloc((size_t)end);
    if (!text)
        return err_errno(e, "allocate a header of %lld bytes", (long long)end);
    TRY(read_at(f, file, 0, text, (size_t)end, e));
    CLEANUP(safetensors_freep) struct safetensors *header = NULL;
    TRY(safetensors_parse(text, (size_t)end, size, &header, e));
    for (int i = 0; i < header->n_entries; i++)
        add_tensor(f, file, header, &header->entries[i]);
    return ST_OK;
}

static status_t open_file(struct weights_folder *f, int file, struct err *e) {
    char path[PATH_MAX + WEIGHTS_FOLDER_FILE_NAME];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", f->directory, f->names[file]);
    TRY(roots_open(f->roots, path, O_RDONLY | O_NONBLOCK, &f->fds[file], e));
    f->n_open = file + 1;
    if (fstat(f->fds[file], &st) < 0 || !S_ISREG(st.st_mode))
        return in_file(f, f->names[file], err_set(e, ST_DATA_LOSS, "it is not a regular file"), e);
    status_t status = read_header(f, file, st.st_size, e);
    return status == ST_OK || strstr(e->msg, f->directory) ? status : in_file(f, f->names[file], status, e);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct weights_folder_tensor *)a)->name, ((const struct weights_folder_tensor *)b)->name);
}

status_t weights_folder_open(const struct roots *roots, const char *directory, struct weights_folder **ret,
                             struct err *e) {
    CLEANUP(weights_folder_closep) struct weights_folder *f = alloc_zeroed(1, sizeof *f);
    f->halves = alloc_zeroed(READ_ELEMENTS, sizeof *f->halves);
    f->roots = roots;
    snprintf(f->directory, sizeof f->directory, "%s", directory);
    TRY(list_files(f, e));
    f->fds = alloc_zeroed((size_t)f->n_files, sizeof *f->fds);
    for (int i = 0; i < f->n_files; i++)
        TRY(open_file(f, i, e));
    qsort(f->tensors, (size_t)f->n_tensors, sizeof *f->tensors, by_name);
    for (int i = 1; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i - 1].name, f->tensors[i].name) == 0)
            return err_set(e, ST_DATA_LOSS, "'%s' has the tensor %.200s twice", f->directory, f->tensors[i].name);
    *ret = take_ptr(&f);
    return ST_OK;
}

/* --- tensors --- */

static int compare_name(const void *key, const void *tensor) {
    return strcmp(key, ((const struct weights_folder_tensor *)tensor)->name);
}

const struct weights_folder_tensor *weights_folder_find(const struct weights_folder *f, const char *name) {
    return f->n_tensors ? bsearch(name, f->tensors, (size_t)f->n_tensors, sizeof *f->tensors, compare_name) : NULL;
}

int64_t weights_folder_tensor_elements(const struct weights_folder_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

static status_t read_halves(const struct weights_folder *f, const struct weights_folder_tensor *t, int64_t first,
                            int64_t count, float (*convert)(uint16_t), float *data, struct err *e) {
    for (int64_t at = 0, n; at < count; at += n) {
        n = count - at < READ_ELEMENTS ? count - at : READ_ELEMENTS;
        TRY(read_at(f, t->file, t->offset + (first + at) * 2, f->halves, (size_t)n * 2, e));
        for (int64_t i = 0; i < n; i++)
            data[at + i] = convert(f->halves[i]);
    }
    return ST_OK;
}

status_t weights_folder_read(const struct weights_folder *f, const struct weights_folder_tensor *t, int64_t first,
                             int64_t count, float *data, struct err *e) {
    if (strcmp(t->dtype, "F32") == 0)
        return read_at(f, t->file, t->offset + first * 4, data, (size_t)count * 4, e);
    if (strcmp(t->dtype, "BF16") == 0)
        return read_halves(f, t, first, count, float_of_bf16, data, e);
    if (strcmp(t->dtype, "F16") == 0)
        return read_halves(f, t, first, count, float_of_fp16, data, e);
    return in_file(
        f, f->names[t->file],
        err_set(e, ST_INVALID_ARGUMENT, "the tensor %.200s is of %s (F32, BF16 and F16 are read)", t->name, t->dtype),
        e);
}
