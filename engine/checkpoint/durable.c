#include "engine/checkpoint/durable.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct durable {
    char *directory;
    char name[NAME_MAX + 1], tmp[NAME_MAX + 1];
    int folder, fd;
    bool begun, renamed, committed;
    int64_t bytes;
    struct sha256 sha256;
    char hex[SHA256_HEX];
};

struct durable *durable_close(struct durable *d) {
    if (!d)
        return NULL;
    if (d->fd >= 0)
        close(d->fd);
    if (d->begun && !d->renamed)
        unlinkat(d->folder, d->tmp, 0);
    if (d->renamed && !d->committed)
        unlinkat(d->folder, d->name, 0); /* the file might not survive a crash */
    free(d->directory);
    free(d);
    return NULL;
}

status_t durable_open(int folder, const char *directory, const char *name, struct durable **ret, struct err *e) {
    CLEANUP(durable_closep) struct durable *d = alloc_zeroed(1, sizeof *d);
    d->fd = -1;
    d->folder = folder;
    sha256_begin(&d->sha256);
    d->directory = alloc_copy_text(directory);
    snprintf(d->name, sizeof d->name, "%s", name);
    if (snprintf(d->tmp, sizeof d->tmp, "%s.tmp", name) >= (int)sizeof d->tmp)
        return err_set(e, ST_INVALID_ARGUMENT, "the name '%.80s...' is too long", name);
    if ((d->fd = openat(folder, d->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666)) < 0)
        return err_errno(e, "create '%s/%s'", directory, d->tmp);
    d->begun = true;
    *ret = take_ptr(&d);
    return ST_OK;
}

status_t durable_write(struct durable *d, const void *data, size_t n, struct err *e) {
    status_t st = fd_write_all(d->fd, data, n, e);
    if (st != ST_OK)
        return err_prefix(e, st, "'%s/%s': ", d->directory, d->tmp);
    sha256_update(&d->sha256, data, n);
    d->bytes += (int64_t)n;
    return ST_OK;
}

status_t durable_commit(struct durable *d, struct err *e) {
    if (fsync(d->fd) < 0)
        return err_errno(e, "fsync '%s/%s'", d->directory, d->tmp);
    /* Some file systems report a failed write only here. */
    if (close(take_fd(&d->fd)) < 0)
        return err_errno(e, "close '%s/%s'", d->directory, d->tmp);
    if (renameat(d->folder, d->tmp, d->folder, d->name) < 0)
        return err_errno(e, "rename '%s/%s' to '%s'", d->directory, d->tmp, d->name);
    d->renamed = true;
    /* Without this a crash could undo the rename. */
    if (fsync(d->folder) < 0)
        return err_errno(e, "fsync folder '%s'", d->directory);
    d->committed = true;
    uint8_t digest[SHA256_BYTES];
    sha256_final(&d->sha256, digest);
    sha256_hex(digest, d->hex);
    return ST_OK;
}

int64_t durable_bytes(const struct durable *d) { return d->bytes; }
const char *durable_sha256(const struct durable *d) { return d->hex; }
