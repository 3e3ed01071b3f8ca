/* The pixels of a folder's images, all in one cache or decoded at each read.
 *
 * If the cache is large enough for all images, image_set_open fills it with threads. Each thread takes the next number,
 * decodes that image and scales it into its place in the cache, without a lock. After a failure the threads take no
 * further images. If several images fail, the error of the lowest number is returned, so that the message is the same
 * in every run: numbers are taken in order, so every lower number was already taken, and its thread completes it. */
#include "engine/data/image_set.h"

#include "base/alloc.h"
#include "engine/data/data_file.h"
#include "engine/data/decode.h"
#include "engine/data/image_crop.h"
#include "engine/data/resize.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct image_set {
    struct image_files *folder;
    struct image_format format;
    size_t bytes;    /* of one image */
    uint8_t *cached; /* (n, size, size, channels), or NULL */
};

struct image_set *image_set_close(struct image_set *p) {
    if (p) {
        image_files_free(p->folder);
        free(p->cached);
        free(p);
    }
    return NULL;
}

const struct image_files *image_set_files(const struct image_set *p) { return p->folder; }

/* The bytes of image i, malloc'd. */
static status_t read_file(const struct image_files *folder, int64_t i, uint8_t **ret, size_t *ret_n, struct err *e) {
    struct data_file f = { .fd = -1 };
    char name[IMAGE_NAME_BYTES];
    int64_t offset = 0, n = 0;
    status_t st = image_files_open(folder, i, &f, &offset, &n, e);
    if (st == ST_OK && n > IMAGE_FILE_BYTES)
        st = err_set(e, ST_INVALID_ARGUMENT, "%s has %lld bytes; at most %d are read",
                     image_files_name(folder, i, name), (long long)n, IMAGE_FILE_BYTES);
    if (st == ST_OK && !(*ret = malloc((size_t)n + 1)))
        st = err_errno(e, "allocate %lld bytes", (long long)n);
    if (st == ST_OK)
        st = data_file_read(&f, offset, *ret, (size_t)n, e);
    *ret_n = (size_t)n;
    data_file_close(&f);
    return st;
}

static status_t name_image(const struct image_files *folder, int64_t i, status_t st, struct err *e) {
    char name[IMAGE_NAME_BYTES];
    return st == ST_OK ? ST_OK : err_prefix(e, st, "%s cannot be read: ", image_files_name(folder, i, name));
}

static status_t decode(const struct image_set *p, int64_t i, uint8_t *to, struct err *e) {
    CLEANUP(freep) uint8_t *bytes = NULL;
    size_t n;
    struct raster raster;
    TRY(read_file(p->folder, i, &bytes, &n, e));
    TRY(name_image(p->folder, i, image_decode(bytes, n, p->format.channels, NULL, &raster, e), e));
    status_t st = raster_fit(&raster, p->format.shorter, p->format.size, to, e);
    free(raster.data);
    return st;
}

static status_t decode_crop(const struct image_set *p, const void *bytes, size_t n,
                            const struct data_resized_crop *crop, int64_t seed, int64_t sample, struct raster *ret,
                            struct err *e) {
    int height, width;
    TRY(image_size(bytes, n, &height, &width, e));
    const struct image_box part = image_crop_draw(crop, seed, sample, height, width);
    return image_decode(bytes, n, p->format.channels, &part, ret, e);
}

status_t image_set_crop(const struct image_set *p, int64_t i, const struct data_resized_crop *crop, int64_t seed,
                        int64_t sample, uint8_t *buffer, struct err *e) {
    CLEANUP(freep) uint8_t *bytes = NULL;
    size_t n;
    struct raster raster;
    TRY(read_file(p->folder, i, &bytes, &n, e));
    TRY(name_image(p->folder, i, decode_crop(p, bytes, n, crop, seed, sample, &raster, e), e));
    status_t st = raster_scale(&raster, p->format.size, p->format.size, buffer, e);
    free(raster.data);
    return st;
}

status_t image_files_first_side(const struct image_files *folder, int *ret, struct err *e) {
    CLEANUP(freep) uint8_t *bytes = NULL;
    size_t n;
    int height, width;
    TRY(read_file(folder, 0, &bytes, &n, e));
    TRY(name_image(folder, 0, image_size(bytes, n, &height, &width, e), e));
    *ret = height < width ? height : width;
    return ST_OK;
}

struct cache_fill {
    struct image_set *p;
    const struct source_options *options;
    _Atomic int64_t next;
    pthread_mutex_t mutex; /* guards the members below */
    int64_t failed;
    status_t status;
    struct err error;
};

static void fill(struct cache_fill *f, bool reports_progress) {
    const struct image_set *p = f->p;
    for (int64_t i; (i = atomic_fetch_add(&f->next, 1)) < p->folder->n;) {
        struct err e;
        status_t st = decode(p, i, p->cached + (size_t)i * p->bytes, &e);
        pthread_mutex_lock(&f->mutex);
        if (st != ST_OK && (f->status == ST_OK || i < f->failed)) {
            f->failed = i;
            f->status = st;
            f->error = e;
        }
        bool stop = f->status != ST_OK;
        pthread_mutex_unlock(&f->mutex);
        if (stop)
            return;
        if (reports_progress && f->options->progress && i % 64 == 0)
            f->options->progress(f->options->ctx);
    }
}

static void *fill_more(void *arg) {
    fill(arg, false);
    return NULL;
}

static status_t fill_cache(struct image_set *p, const struct source_options *options, struct err *e) {
    enum { MAX_THREADS = 64 };
    pthread_t others[MAX_THREADS];
    int started = 0;
    struct cache_fill f = { .p = p, .options = options };
    pthread_mutex_init(&f.mutex, NULL);
    while (started < MAX_THREADS && started + 1 < options->threads &&
           pthread_create(&others[started], NULL, fill_more, &f) == 0)
        started++;
    fill(&f, true);
    for (int t = 0; t < started; t++)
        pthread_join(others[t], NULL);
    pthread_mutex_destroy(&f.mutex);
    return f.status == ST_OK ? ST_OK : err_set(e, f.status, "%s", f.error.msg);
}

status_t image_set_open(struct image_files *folder, const struct image_format *format,
                        const struct source_options *options, struct image_set **ret, struct err *e) {
    struct image_set *p = alloc_zeroed(1, sizeof *p);
    p->folder = folder;
    p->format = *format;
    p->bytes = (size_t)format->size * (size_t)format->size * (size_t)format->channels;
    status_t st = ST_OK;
    if (!format->parts && folder->n <= IMAGE_SET_CACHE_BYTES / (int64_t)p->bytes) {
        p->cached = malloc((size_t)folder->n * p->bytes + 1);
        st = p->cached ? fill_cache(p, options, e)
                       : err_errno(e, "allocate the pixels of %lld images", (long long)folder->n);
    }
    if (st != ST_OK) {
        p->folder = NULL;
        image_set_close(p);
        return st;
    }
    *ret = p;
    return ST_OK;
}

size_t image_set_bytes(const struct image_set *p) {
    if (!p)
        return 0;
    return image_files_bytes(p->folder) + (p->cached ? (size_t)p->folder->n * p->bytes : 0);
}

size_t image_set_buffer_bytes(const struct image_set *p) { return p->cached ? 0 : p->bytes; }

status_t image_set_read(const struct image_set *p, int64_t i, uint8_t *buffer, const uint8_t **ret, struct err *e) {
    *ret = p->cached ? p->cached + (size_t)i * p->bytes : buffer;
    return p->cached ? ST_OK : decode(p, i, buffer, e);
}

static void digest_name(const struct image_files *folder, const struct image_file *file, struct sha256 *sha256) {
    const int64_t label = file->label;
    const char *name = file->path ? file->name : folder->archives[file->archive].name;
    sha256_update(sha256, name, strlen(name) + 1);
    sha256_update(sha256, &label, sizeof label);
    sha256_update(sha256, &file->bytes, sizeof file->bytes);
    if (!file->path)
        sha256_update(sha256, &file->offset, sizeof file->offset);
}

static status_t digest_set(const struct image_set *p, struct sha256 *sha256, struct err *e) {
    const int64_t max = (int64_t)1 << 30; /* beyond this size, the digest covers only names, labels and lengths */
    int64_t all = 0;
    for (int64_t i = 0; i < p->folder->n; i++)
        all += p->folder->files[i].bytes;
    for (int64_t i = 0; i < p->folder->n; i++) {
        CLEANUP(freep) uint8_t *bytes = NULL;
        size_t n;
        digest_name(p->folder, &p->folder->files[i], sha256);
        if (all > max)
            continue;
        TRY(read_file(p->folder, i, &bytes, &n, e));
        sha256_update(sha256, bytes, n);
    }
    return ST_OK;
}

status_t image_set_digest(struct image_set *const *sets, int n, char ret[SHA256_HEX], struct err *e) {
    struct sha256 sha256;
    sha256_begin(&sha256);
    status_t st = ST_OK;
    for (int i = 0; i < n && st == ST_OK; i++)
        if (sets[i])
            st = digest_set(sets[i], &sha256, e);
    uint8_t bytes[SHA256_BYTES];
    sha256_final(&sha256, bytes);
    sha256_hex(bytes, ret);
    return st;
}
