/* Each file becomes one entry in the order of the paths: its path, its bytes, and the mode 0644 or 0755, without owner
 * and time. The format is ustar, with an extended header (pax) only for what ustar cannot express, such as a long path.
 * Names are bytes: the character set of the machine does not matter.
 *
 * libarchive's output goes through write_block, which writes the file and computes the SHA-256. The number of bytes of
 * each file is that of the list; a file that has changed meanwhile is an error, because its archive would be a state
 * that never existed. */
#include "cli/code/pack.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"

#include <archive.h>
#include <archive_entry.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 256 << 10 };

struct writing {
    int folder;
    struct code_pack *pack;
    struct sha256 digest;
    struct archive *tar;
    struct err why; /* of write_block */
};

void code_pack_done(struct code_pack *p) {
    if (p->list)
        closep(&p->fd);
    p->list = code_list_free(p->list);
}

static la_ssize_t write_block(struct archive *tar, void *ctx, const void *data, size_t n) {
    struct writing *w = ctx;
    if (fd_write_all(w->pack->fd, data, n, &w->why) != ST_OK) {
        archive_set_error(tar, EIO, "%s", w->why.msg);
        return -1;
    }
    sha256_update(&w->digest, data, n);
    w->pack->bytes += (int64_t)n;
    return (la_ssize_t)n;
}

static status_t fail(const struct writing *w, struct err *e) {
    const char *why = archive_error_string(w->tar);
    return err_set(e, ST_INTERNAL, "write the archive: %s", why ? why : "unknown error");
}

static status_t changed(const char *path, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "'%.200s' changed while it was packed: submit again", path);
}

static status_t write_bytes(struct writing *w, const struct code_file *file, struct err *e) {
    static char buffer[READ_BYTES];
    int64_t left = file->bytes;
    CLEANUP(closep) int fd = openat(w->folder, file->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(e, "open '%.200s'", file->path);
    for (;;) {
        const ssize_t n = read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, "read '%.200s'", file->path);
        if (n == 0)
            return left == 0 ? ST_OK : changed(file->path, e);
        left -= n;
        if (left < 0)
            return changed(file->path, e);
        if (archive_write_data(w->tar, buffer, (size_t)n) != n)
            return fail(w, e);
    }
}

static status_t write_entry(struct writing *w, struct archive_entry *entry, const struct code_file *file,
                            struct err *e) {
    archive_entry_clear(entry);
    archive_entry_set_pathname(entry, file->path);
    archive_entry_set_filetype(entry, file->target ? AE_IFLNK : AE_IFREG);
    archive_entry_set_perm(entry, file->executable || file->target ? 0755 : 0644);
    archive_entry_set_mtime(entry, 0, 0);
    archive_entry_set_uid(entry, 0);
    archive_entry_set_gid(entry, 0);
    archive_entry_set_size(entry, file->bytes);
    if (file->target)
        archive_entry_set_symlink(entry, file->target);
    if (archive_write_header(w->tar, entry) != ARCHIVE_OK)
        return fail(w, e);
    return file->target ? ST_OK : write_bytes(w, file, e);
}

static status_t write_tar(struct writing *w, struct err *e) {
    const struct code_list *list = w->pack->list;
    if (archive_write_set_format_pax_restricted(w->tar) != ARCHIVE_OK ||
        archive_write_set_options(w->tar, "hdrcharset=BINARY") != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(w->tar, 1) != ARCHIVE_OK ||
        archive_write_open(w->tar, w, NULL, write_block, NULL) != ARCHIVE_OK)
        return fail(w, e);
    struct archive_entry *entry = archive_entry_new2(w->tar);
    status_t st = entry ? ST_OK : fail(w, e);
    for (size_t i = 0; st == ST_OK && i < list->n; i++)
        st = write_entry(w, entry, &list->files[i], e);
    archive_entry_free(entry);
    TRY(st);
    return archive_write_close(w->tar) == ARCHIVE_OK ? ST_OK : fail(w, e);
}

/* Headers count, too: 512 bytes for each file, and its last block. */
static status_t check_size(const struct code_list *list, struct err *e) {
    enum { BLOCK = 512 };
    char largest[200];
    int64_t bytes = 2 * BLOCK;
    for (size_t i = 0; i < list->n; i++)
        bytes += BLOCK + (list->files[i].bytes + BLOCK - 1) / BLOCK * BLOCK;
    if (bytes <= LIMIT_CODE_BYTES)
        return ST_OK;
    code_list_largest(list, false, largest, sizeof largest);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "%.0f MiB are more than the maximum of %lld MiB; the largest are %s: leave out what is not code in "
                   ".trainyardignore",
                   (double)bytes / (1 << 20), LIMIT_CODE_BYTES >> 20, largest);
}

static status_t temporary_open(int *ret, struct err *e) {
    const char *folder = getenv("TMPDIR");
    folder = folder && *folder ? folder : "/tmp";
    *ret = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*ret >= 0)
        return ST_OK;
    char *path = alloc_format("%s/trainyard-code-XXXXXX", folder); /* this file system has no O_TMPFILE */
    *ret = mkostemp(path, O_CLOEXEC);
    status_t st = *ret < 0 ? err_errno(e, "create a file in '%.200s'", folder) : ST_OK;
    if (st == ST_OK)
        unlink(path);
    free(path);
    return st;
}

static status_t pack(int folder, struct code_pack *p, struct err *e) {
    struct writing w = { .folder = folder, .pack = p };
    uint8_t digest[SHA256_BYTES];
    assert(p->list);
    if (p->list->n == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "has no file to pack%s",
                       p->list->git_has_none ? ": git ignores all files that are in it" : "");
    TRY(check_size(p->list, e));
    TRY(temporary_open(&p->fd, e));
    sha256_begin(&w.digest);
    w.tar = archive_write_new();
    if (!w.tar)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "out of memory");
    status_t st = write_tar(&w, e);
    archive_write_free(w.tar);
    sha256_final(&w.digest, digest);
    sha256_hex(digest, p->archive);
    return st;
}

status_t code_pack(const char *folder, struct code_pack *ret, struct err *e) {
    struct code_pack p = { .fd = -1 };
    CLEANUP(closep) int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    status_t st = fd < 0 ? err_errno(e, "open the folder") : code_list_read(fd, folder, &p.list, e);
    if (st == ST_OK)
        st = pack(fd, &p, e);
    if (st != ST_OK) {
        code_pack_done(&p);
        return err_prefix(e, ST_INVALID_ARGUMENT, "program.code.folder: '%.120s': ", folder);
    }
    *ret = p;
    return ST_OK;
}
