/* Every blob is compared with the digest by which it is named: JSON when it is read, a layer in its first pass. An
 * archive is first taken apart into a layout; only the names of a layout are taken from it. */
#include "executor/image/unpack.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/sha256.h"
#include "executor/image/archive_failure.h"
#include "executor/image/layer.h"
#include "executor/image/layout.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { FILES_MAX = 4 << 20, INDEXES_MAX = 4, READ_BYTES = 256 << 10, BLOBS_MAX = 4096 };

static const char BLOBS[] = "blobs/sha256/";

/* ---- an archive ---- */

static bool is_of_layout(const char *name) {
    const size_t n = sizeof BLOBS - 1;
    return strcmp(name, "index.json") == 0 ||
           (strncmp(name, BLOBS, n) == 0 && strlen(name + n) == LAYOUT_DIGEST_BYTES - 1 &&
            strspn(name + n, "0123456789abcdef") == LAYOUT_DIGEST_BYTES - 1);
}

static status_t refuse(struct archive *a, struct err *e) { return archive_failure(a, "the archive of the image", e); }

static status_t part_take(struct archive *a, struct archive_entry *entry, int layout, int64_t *left, struct err *e) {
    const char *name = archive_entry_pathname(entry);
    while (name && strncmp(name, "./", 2) == 0)
        name += 2;
    if (!name || archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) || !is_of_layout(name))
        return ST_OK;
    *left -= archive_entry_size(entry);
    if (*left < 0)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the archive has more bytes than the executor keeps "
                       "(--environment-cache-mib)");
    CLEANUP(closep) int fd = openat(layout, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, "write '%.100s' of the image", name);
    return archive_read_data_into_fd(a, fd) == ARCHIVE_OK ? ST_OK : refuse(a, e);
}

static status_t parts_take(struct archive *a, int layout, int64_t max_bytes, struct err *e) {
    struct archive_entry *entry;
    int got, n = 0;
    while ((got = archive_read_next_header(a, &entry)) == ARCHIVE_OK || got == ARCHIVE_WARN) {
        if (n++ == BLOBS_MAX)
            return err_set(e, ST_INVALID_ARGUMENT, "the archive of the image has more than %d files", BLOBS_MAX);
        TRY(part_take(a, entry, layout, &max_bytes, e));
    }
    return got == ARCHIVE_EOF ? ST_OK : refuse(a, e);
}

/* *ret: the open folder of the layout. */
static status_t archive_take_apart(const struct image_order *o, int file, int *ret, struct err *e) {
    char path[PATH_MAX], blobs[PATH_MAX + sizeof BLOBS];
    if (snprintf(path, sizeof path, "%s/parts", o->temporary) >= (int)sizeof path)
        return err_set(e, ST_INVALID_ARGUMENT, "the path is too long");
    snprintf(blobs, sizeof blobs, "%s/%s", path, BLOBS);
    TRY(dir_make(blobs, 0700, e));
    CLEANUP(closep) int layout = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct archive *a = archive_read_new();
    if (layout < 0 || !a)
        return err_errno(e, "open '%.200s'", path);
    archive_read_support_format_tar(a);
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_zstd(a);
    status_t st = archive_read_open_fd(a, file, READ_BYTES) == ARCHIVE_OK ? ST_OK : refuse(a, e);
    if (st == ST_OK)
        st = parts_take(a, layout, o->max_bytes, e);
    archive_read_free(a);
    if (st == ST_OK)
        *ret = take_fd(&layout);
    return st;
}

static status_t layout_open(const struct image_order *o, int *ret, struct err *e) {
    struct stat st;
    if (fstat(o->source, &st) < 0)
        return err_errno(e, "open the image");
    if (S_ISREG(st.st_mode))
        return archive_take_apart(o, o->source, ret, e);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ST_INVALID_ARGUMENT, "the image is neither a file nor a folder");
    *ret = openat(o->source, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? err_errno(e, "open the folder of the image") : ST_OK;
}

/* ---- its parts ---- */

static status_t part_open(int layout, const char *name, int *ret, struct err *e) {
    struct stat st;
    CLEANUP(closep) int fd = openat(layout, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? err_set(e, ST_INVALID_ARGUMENT, "the image has no file %s: it is no OCI layout", name)
                               : err_errno(e, "open '%s' of the image", name);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' of the image is not a file", name);
    *ret = take_fd(&fd);
    return ST_OK;
}

static status_t blob_open(int layout, const struct layout_digest *digest, int *ret, struct err *e) {
    char name[sizeof BLOBS + LAYOUT_DIGEST_BYTES];
    snprintf(name, sizeof name, "%s%s", BLOBS, digest->text);
    return part_open(layout, name, ret, e);
}

static status_t text_read(int fd, struct bytes *ret, struct err *e) {
    char piece[4096];
    ssize_t n;
    while ((n = read(fd, piece, sizeof piece)) > 0)
        TRY(bytes_append(ret, piece, (size_t)n, e));
    return n < 0 ? err_errno(e, "read the image") : ST_OK;
}

/* JSON, of which digest is the SHA-256. */
static status_t blob_read(int layout, const struct layout_digest *digest, struct bytes *ret, struct err *e) {
    CLEANUP(closep) int fd = -1;
    uint8_t sum[SHA256_BYTES];
    char found[SHA256_HEX];
    struct sha256 s;
    ret->len = 0;
    TRY(blob_open(layout, digest, &fd, e));
    TRY(text_read(fd, ret, e));
    sha256_begin(&s);
    sha256_update(&s, ret->data, ret->len);
    sha256_final(&s, sum);
    sha256_hex(sum, found);
    return strcmp(found, digest->text) == 0
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT, "a file of the image has another SHA-256 than its name says");
}

static status_t manifest_find(int layout, const char *machine, struct bytes *text, struct layout_manifest *ret,
                              struct err *e) {
    CLEANUP(closep) int fd = -1;
    struct layout_digest digest;
    bool index = true;
    TRY(part_open(layout, "index.json", &fd, e));
    TRY(text_read(fd, text, e));
    for (int i = 0; index; i++) {
        if (i == INDEXES_MAX)
            return err_set(e, ST_INVALID_ARGUMENT, "the indexes of the image name more and more indexes");
        TRY(layout_index_read(text->data, text->len, machine, &digest, &index, e));
        TRY(blob_read(layout, &digest, text, e));
    }
    return layout_manifest_read(text->data, text->len, ret, e);
}

static status_t layers_apply(int layout, const struct layout_manifest *m, const struct image_order *o, struct err *e) {
    struct layer_limits limits = { .bytes = o->max_bytes, .files = FILES_MAX };
    TRY(dir_make(o->root, 0755, e));
    CLEANUP(closep) int root = open(o->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_errno(e, "open '%.200s'", o->root);
    for (size_t i = 0; i < m->n_layers; i++) {
        CLEANUP(closep) int blob = -1;
        TRY(blob_open(layout, &m->layers[i], &blob, e));
        TRY(layer_apply(blob, m->layers[i].text, root, &limits, e));
    }
    return ST_OK;
}

static status_t layout_unpack(int layout, const struct image_order *o, struct bytes *text, struct err *e) {
    CLEANUP(freep) struct layout_manifest *m = alloc_zeroed(1, sizeof *m);
    CLEANUP(freep) char *variables = NULL;
    size_t n = 0;
    struct utsname host;
    if (uname(&host) < 0)
        return err_errno(e, "find the kind of this machine");
    TRY(manifest_find(layout, host.machine, text, m, e));
    TRY(blob_read(layout, &m->config, text, e));
    TRY(layout_config_read(text->data, text->len, host.machine, &variables, &n, e));
    TRY(file_write_atomic(o->variables, variables ? variables : "", n, 0644, e));
    return layers_apply(layout, m, o, e);
}

status_t image_unpack(const struct image_order *o, struct err *e) {
    CLEANUP(closep) int layout = -1;
    struct bytes text;
    TRY(layout_open(o, &layout, e));
    bytes_init(&text, LAYOUT_JSON_MAX);
    status_t st = layout_unpack(layout, o, &text, e);
    bytes_done(&text);
    return st;
}
