/* A manifest is a list of names, sizes and digests.
 *
 * Reading trusts nothing: the checksum of the text is checked first, then the type and the range of every member. A
 * name may only lead downwards, so that the manifest of one checkpoint cannot name a file outside of it.
 *
 * file_manifest_verify opens the attempt's folder below a root, and in it every file by its name without following a
 * symbolic link (beneath.h). It compares the size first, which costs nothing, and then the digest of all bytes. It
 * holds one block of 1 MiB and one open file at a time. */
#include "executor/worker/file_manifest.h"

#include "base/alloc.h"
#include "base/beneath.h"
#include "base/file.h"
#include "base/roots.h"
#include "engine/checkpoint/checksummed.h"
#include "engine/checkpoint/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char FORMAT[] = "trainyard-files-1";
enum { BLOCK_BYTES = 1 << 20, STEP_DIGITS = 18 };

struct file_manifest *file_manifest_free(struct file_manifest *m) {
    for (size_t i = 0; m && i < m->n; i++)
        free(m->files[i].name);
    if (m) {
        free(m->files);
        free(m->path);
    }
    free(m);
    return NULL;
}

struct manifest_file *file_manifest_add(struct file_manifest *m, const char *name, int64_t bytes) {
    m->files = alloc_grow(m->files, m->n, sizeof *m->files);
    struct manifest_file *file = &m->files[m->n++];
    *file = (struct manifest_file){ .name = alloc_copy_text(name), .bytes = bytes };
    return file;
}

int64_t file_manifest_bytes(const struct file_manifest *m) {
    int64_t sum = 0;
    for (size_t i = 0; i < m->n; i++)
        sum += m->files[i].bytes;
    return sum;
}

/* ---- write ---- */

status_t file_manifest_write(const struct file_manifest *m, struct bytes *ret, struct err *e) {
    json_t *files = json_array();
    CLEANUP(json_decrefp)
    json_t *root = json_pack("{s:s, s:I, s:s, s:o}", "format", FORMAT, "step", (json_int_t)m->step, "path", m->path,
                             "files", files);
    if (!root)
        return err_set(e, ST_INVALID_ARGUMENT, "the name of the checkpoint is not UTF-8");
    for (size_t i = 0; i < m->n; i++) {
        const struct manifest_file *f = &m->files[i];
        json_t *file = json_pack("{s:s, s:I, s:s}", "name", f->name, "bytes", (json_int_t)f->bytes, "sha256",
                                 f->sha256);
        if (!file || json_array_append_new(files, file) != 0)
            return err_set(e, ST_INVALID_ARGUMENT, "the name of its file '%.200s' is not UTF-8", f->name);
    }
    return checksummed_write(root, ret, e);
}

status_t file_manifest_store(const struct file_manifest *m, int folder, const char *path, const char *name,
                             char ret[SHA256_HEX], struct err *e) {
    char file[64];
    CLEANUP(bytes_done) struct bytes text;
    CLEANUP(durable_closep) struct durable *d = NULL;
    bytes_init(&text, FILE_MANIFEST_BYTES);
    snprintf(file, sizeof file, "%.50s.json", name);
    TRY(file_manifest_write(m, &text, e));
    TRY(durable_open(folder, path, file, &d, e));
    TRY(durable_write(d, text.data, text.len, e));
    TRY(durable_commit(d, e));
    memcpy(ret, durable_sha256(d), SHA256_HEX);
    return ST_OK;
}

/* ---- read ---- */

/* Whether a name leads downwards only. */
static bool name_valid(const char *name) {
    if (strlen(name) >= FILE_MANIFEST_NAME_BYTES)
        return false;
    for (const char *part = name;; part += strcspn(part, "/") + 1) {
        const size_t n = strcspn(part, "/");
        if (n == 0 || n > NAME_MAX || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (!part[n])
            return true;
    }
}

static bool hex_valid(const char *text) {
    return text && strlen(text) == SHA256_HEX - 1 && strspn(text, "0123456789abcdef") == SHA256_HEX - 1;
}

static status_t get_file(json_t *value, bool alone, struct file_manifest *m, struct err *e) {
    const char *name = json_string_value(json_object_get(value, "name"));
    const char *sha256 = json_string_value(json_object_get(value, "sha256"));
    json_t *bytes = json_object_get(value, "bytes");
    if (!name || !(name_valid(name) || (alone && !*name)))
        return err_set(e, ST_DATA_LOSS, "it has a file without a valid name");
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0 || !hex_valid(sha256))
        return err_set(e, ST_DATA_LOSS, "its file '%.200s' has no size or no digest", name);
    struct manifest_file *file = file_manifest_add(m, name, json_integer_value(bytes));
    memcpy(file->sha256, sha256, SHA256_HEX);
    return ST_OK;
}

static status_t get_members(json_t *root, struct file_manifest *m, struct err *e) {
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *path = json_string_value(json_object_get(root, "path"));
    json_t *step = json_object_get(root, "step"), *files = json_object_get(root, "files");
    char folder[32];
    if (!format || strcmp(format, FORMAT) != 0)
        return err_set(e, ST_DATA_LOSS, "its format is '%.40s' and not '%s'", format ? format : "", FORMAT);
    if (!json_is_integer(step) || json_integer_value(step) < 0)
        return err_set(e, ST_DATA_LOSS, "its 'step' is not a number from 0 on");
    m->step = json_integer_value(step);
    const size_t n = (size_t)snprintf(folder, sizeof folder, "step-%lld", (long long)m->step);
    if (!path || !name_valid(path) || strncmp(path, folder, n) != 0 || (path[n] && path[n] != '/'))
        return err_set(e, ST_DATA_LOSS, "its 'path' is not in %s", folder);
    m->path = alloc_copy_text(path);
    const size_t n_files = json_array_size(files);
    if (n_files < 1 || n_files > FILE_MANIFEST_FILES)
        return err_set(e, ST_DATA_LOSS, "its 'files' is not a list of 1 to %d", FILE_MANIFEST_FILES);
    for (size_t i = 0; i < n_files; i++)
        TRY(get_file(json_array_get(files, i), n_files == 1, m, e));
    return ST_OK;
}

status_t file_manifest_parse(const char *text, size_t n, struct file_manifest **ret, struct err *e) {
    json_error_t where;
    CLEANUP(json_decrefp) json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return err_set(e, ST_DATA_LOSS, "it is not valid JSON: %s", where.text);
    CLEANUP(file_manifest_freep) struct file_manifest *m = alloc_zeroed(1, sizeof *m);
    TRY(get_members(root, m, e));
    *ret = take_ptr(&m);
    return ST_OK;
}

/* ---- bytes ---- */

status_t file_digest(int fd, const char *path, const struct file_progress *progress, char ret[SHA256_HEX],
                     int64_t *ret_bytes, struct err *e) {
    CLEANUP(freep) char *block = malloc(BLOCK_BYTES);
    struct sha256 state;
    uint8_t digest[SHA256_BYTES];
    int64_t bytes = 0;
    if (!block)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to read '%s'", path);
    sha256_begin(&state);
    for (;;) {
        if (!progress->continues(progress->ctx))
            return err_set(e, ST_CANCELLED, "stopped while '%.200s' was read", path);
        const ssize_t n = read(fd, block, BLOCK_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_unreadable(e, "read '%s'", path);
        if (n == 0)
            break;
        sha256_update(&state, block, (size_t)n);
        bytes += n;
    }
    sha256_final(&state, digest);
    sha256_hex(digest, ret);
    *ret_bytes = bytes;
    return ST_OK;
}

/* ---- verify ---- */

static status_t read_manifest(int attempt, const char *directory, const char *name, struct file_manifest **ret,
                              struct err *e) {
    char file[64], path[PATH_MAX + 8];
    CLEANUP(bytes_done) struct bytes text;
    CLEANUP(closep) int fd = -1;
    bytes_init(&text, FILE_MANIFEST_BYTES);
    snprintf(file, sizeof file, "%.50s.json", name);
    snprintf(path, sizeof path, "%s.json", directory);
    TRY(beneath_open(attempt, file, O_RDONLY | O_NONBLOCK | O_NOCTTY, path, &fd, e));
    status_t st = fd_read_file(fd, path, &text, e);
    if (st == ST_RESOURCE_EXHAUSTED || st == ST_INVALID_ARGUMENT)
        return ST_DATA_LOSS;
    if (st == ST_OK)
        st = checksummed_check(text.data ? text.data : "", text.len, e);
    if (st == ST_OK)
        st = file_manifest_parse(text.data, text.len, ret, e);
    if (st == ST_DATA_LOSS)
        return err_prefix(e, st, "'%s': ", path);
    return st;
}

static status_t verify_file(int attempt, const char *path, const struct manifest_file *file,
                            const struct file_progress *progress, struct err *e) {
    CLEANUP(freep) char *name = *file->name ? alloc_format("%s/%s", path, file->name) : alloc_copy_text(path);
    CLEANUP(closep) int fd = -1;
    struct stat st;
    char sha256[SHA256_HEX];
    int64_t bytes = 0;
    TRY(beneath_open(attempt, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, name, &fd, e));
    if (fstat(fd, &st) < 0)
        return err_unreadable(e, "stat '%s'", name);
    if (!S_ISREG(st.st_mode) || st.st_size != file->bytes)
        return err_set(e, ST_DATA_LOSS, "'%s' is not the file of %lld bytes that its manifest names", name,
                       (long long)file->bytes);
    TRY(file_digest(fd, name, progress, sha256, &bytes, e));
    return bytes == file->bytes && strcmp(sha256, file->sha256) == 0
               ? ST_OK
               : err_set(e, ST_DATA_LOSS, "the bytes of '%s' do not match the digest in its manifest", name);
}

/* The attempt's folder, and the name of the step in it. */
static status_t attempt_open(const struct roots *roots, const char *directory, int *ret, const char **ret_name,
                             struct err *e) {
    char attempt[PATH_MAX];
    const char *slash = strrchr(directory, '/');
    if (!slash || slash == directory || !slash[1] || strlen(slash) > STEP_DIGITS + 6 ||
        (size_t)(slash - directory) >= sizeof attempt)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.200s' is not the folder of a step", directory);
    snprintf(attempt, sizeof attempt, "%.*s", (int)(slash - directory), directory);
    *ret_name = slash + 1;
    return roots_open(roots, attempt, O_RDONLY | O_DIRECTORY, ret, e);
}

bool file_manifest_has(const struct roots *roots, const char *directory) {
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s.json", directory) < (int)sizeof path && roots_has(roots, path);
}

/* The open folder of the attempt is the caller's. */
static status_t open_and_read(const struct roots *roots, const char *directory, int *ret_attempt,
                              struct file_manifest **ret, struct err *e) {
    CLEANUP(closep) int attempt = -1;
    CLEANUP(file_manifest_freep) struct file_manifest *m = NULL;
    const char *name = "";
    char step[32];
    TRY(attempt_open(roots, directory, &attempt, &name, e));
    TRY(read_manifest(attempt, directory, name, &m, e));
    snprintf(step, sizeof step, "step-%lld", (long long)m->step);
    if (strcmp(step, name) != 0)
        return err_set(e, ST_DATA_LOSS, "'%.300s.json': it is the manifest of %s", directory, step);
    *ret_attempt = take_fd(&attempt);
    *ret = take_ptr(&m);
    return ST_OK;
}

status_t file_manifest_read(const struct roots *roots, const char *directory, struct file_manifest **ret,
                            struct err *e) {
    CLEANUP(closep) int attempt = -1;
    return open_and_read(roots, directory, &attempt, ret, e);
}

status_t file_manifest_verify(const struct roots *roots, const char *directory, const struct file_progress *progress,
                              struct file_manifest **ret, struct err *e) {
    CLEANUP(closep) int attempt = -1;
    CLEANUP(file_manifest_freep) struct file_manifest *m = NULL;
    TRY(open_and_read(roots, directory, &attempt, &m, e));
    for (size_t i = 0; i < m->n; i++)
        TRY(verify_file(attempt, m->path, &m->files[i], progress, e));
    if (ret)
        *ret = take_ptr(&m);
    return ST_OK;
}
