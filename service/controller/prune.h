/* Deleted jobs: their files go, then their rows in batches, on a thread of its own; and jobs that ended long ago are
 * deleted, where that is asked for. Whatever is left when this process dies is gone on with by the next leader.
 *
 * A job waits, and is tried again a second later and then after longer pauses up to a minute, until its files are known
 * to be gone (checkpoint_files.h): nothing but its rows names them. So it does while a job that began with one of its
 * checkpoints is there. Thread-safe. */
#ifndef SERVICE_CONTROLLER_PRUNE_H
#define SERVICE_CONTROLLER_PRUNE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#include <stdint.h>

/* How often it looks without being told. */
#define PRUNE_LOOK_MS 60000
/* Jobs that one look marks as deleted at most. */
#define PRUNE_MARKS 1000

struct prune;
/* keep_ended_days: jobs that ended longer ago are deleted; 0 = none is. */
MUST_CHECK status_t prune_open(struct store *store, const char *checkpoints, int keep_ended_days, struct prune **ret,
                               struct err *e);
struct prune *prune_close(struct prune *p);
CLEANUP_DEFINE(struct prune *, prune_close)

void prune_lead(struct prune *p, int64_t epoch);
void prune_soon(struct prune *p); /* a job was deleted */

#endif
