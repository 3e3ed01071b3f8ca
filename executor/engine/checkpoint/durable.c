#include "executor/engine/checkpoint/durable.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct durable {
    char *directory;
    char path[PATH_MAX], tmp[PATH_MAX];
    int fd;
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
        unlink(d->tmp);
    if (d->renamed && !d->committed)
        unlink(d->path); /* whether it would survive a crash is not known */
    free(d->directory);
    free(d);
    return NULL;
}

status_t durable_open(const char *directory, const char *name, struct durable **ret, struct err *e) {
    CLEANUP(durable_closep) struct durable *d = calloc(1, sizeof *d);
    if (!d)
        return err_errno(e, "allocate a file");
    d->fd = -1;
    sha256_begin(&d->sha256);
    if (!(d->directory = strdup(directory)))
        return err_errno(e, "allocate a path");
    if (snprintf(d->path, sizeof d->path, "%s/%s", directory, name) >= (int)sizeof d->path ||
        snprintf(d->tmp, sizeof d->tmp, "%s/%s.tmp", directory, name) >= (int)sizeof d->tmp)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.80s...' is too long", directory);
    if ((d->fd = open(d->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644)) < 0)
        return err_errno(e, "create '%s'", d->tmp);
    d->begun = true;
    *ret = take_ptr(&d);
    return ST_OK;
}

status_t durable_write(struct durable *d, const void *data, size_t n, struct err *e) {
    status_t st = fd_write_all(d->fd, data, n, e);
    if (st != ST_OK)
        return err_prefix(e, st, "'%s': ", d->tmp);
    sha256_update(&d->sha256, data, n);
    d->bytes += (int64_t)n;
    return ST_OK;
}

status_t durable_commit(struct durable *d, struct err *e) {
    if (fsync(d->fd) < 0)
        return err_errno(e, "fsync '%s'", d->tmp);
    /* Some file systems tell a failed write only here. */
    if (close(take_fd(&d->fd)) < 0)
        return err_errno(e, "close '%s'", d->tmp);
    if (rename(d->tmp, d->path) < 0)
        return err_errno(e, "rename '%s' to '%s'", d->tmp, d->path);
    d->renamed = true;
    TRY(dir_sync(d->directory, e));
    d->committed = true;
    uint8_t digest[SHA256_BYTES];
    sha256_final(&d->sha256, digest);
    sha256_hex(digest, d->hex);
    return ST_OK;
}

int64_t durable_bytes(const struct durable *d) { return d->bytes; }
const char *durable_sha256(const struct durable *d) { return d->hex; }
