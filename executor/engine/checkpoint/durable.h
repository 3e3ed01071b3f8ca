/* A file that is there whole or not at all: written under "NAME.tmp", hashed on the way, fsynced, renamed to NAME, and
 * its folder fsynced. After durable_close without a commit that succeeded NAME.tmp is gone and NAME is as it was; or
 * NAME is gone too, where only the folder's fsync failed: nobody knows whether it would survive a crash. For
 * checkpoint/ and pretrained/. */
#ifndef EXECUTOR_ENGINE_CHECKPOINT_DURABLE_H
#define EXECUTOR_ENGINE_CHECKPOINT_DURABLE_H

#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct durable;

MUST_CHECK status_t durable_open(const char *directory, const char *name, struct durable **ret, struct err *e);
MUST_CHECK status_t durable_write(struct durable *d, const void *data, size_t n, struct err *e);
/* The file is there, for good. Then only close. */
MUST_CHECK status_t durable_commit(struct durable *d, struct err *e);
struct durable *durable_close(struct durable *d);
CLEANUP_DEFINE(struct durable *, durable_close)

int64_t durable_bytes(const struct durable *d); /* so far */
/* Of what was written, hex; valid after commit, until close. */
const char *durable_sha256(const struct durable *d);

#endif
