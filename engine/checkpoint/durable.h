/* A file that exists completely or not at all: written as "NAME.tmp" and hashed, fsynced, renamed to NAME, and the
 * folder fsynced. durable_close without a successful commit removes NAME.tmp and leaves NAME as it was; if only the
 * folder's fsync failed, it also removes NAME, because the file might not survive a crash. Used by checkpoint/ and
 * pretrained/. */
#ifndef ENGINE_CHECKPOINT_DURABLE_H
#define ENGINE_CHECKPOINT_DURABLE_H

#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct durable;

/* Creates file `name` in an open folder, whose descriptor is borrowed until close. directory: its name in error
 * messages. Symbolic links are not followed. */
MUST_CHECK status_t durable_open(int folder, const char *directory, const char *name, struct durable **ret,
                                 struct err *e);
MUST_CHECK status_t durable_write(struct durable *d, const void *data, size_t n, struct err *e);
/* Makes the file durable. After this only durable_close is allowed. */
MUST_CHECK status_t durable_commit(struct durable *d, struct err *e);
struct durable *durable_close(struct durable *d);
CLEANUP_DEFINE(struct durable *, durable_close)

int64_t durable_bytes(const struct durable *d); /* number of bytes written so far */
/* SHA-256 of the bytes written, hex; valid after commit, until close. */
const char *durable_sha256(const struct durable *d);

#endif
