/* Checkpoint garbage collection: deletes old checkpoints after newer ones are committed, in two phases. Rows become
 * DELETING, the folders are removed (checkpoint_files.h), rows become DELETED. A failure is retried after a second,
 * then after longer pauses up to a minute, and by the next leader. Requests are only in memory, so a new leader scans
 * all jobs for checkpoints that an earlier leader had not marked. Rows whose folders are unreachable stay DELETING.
 * Thread-safe. */
#ifndef SERVICE_CONTROLLER_CHECKPOINT_GC_H
#define SERVICE_CONTROLLER_CHECKPOINT_GC_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#include <stdint.h>

/* Every period, all jobs with DELETING checkpoints are due. */
#define CHECKPOINT_GC_PERIOD_MS 60000
/* Requested jobs that are remembered; after more requests, all jobs are scanned instead. */
#define CHECKPOINT_GC_MAX_WAITING 256

struct checkpoint_place;
struct checkpoint_gc;
MUST_CHECK status_t checkpoint_gc_open(struct store *store, const struct checkpoint_place *place,
                                       struct checkpoint_gc **ret, struct err *e);
struct checkpoint_gc *checkpoint_gc_close(struct checkpoint_gc *r);
CLEANUP_DEFINE(struct checkpoint_gc *, checkpoint_gc_close)

void checkpoint_gc_lead(struct checkpoint_gc *r, int64_t epoch);
/* A checkpoint of the job was committed, unpinned or deleted, or the job has ended. */
void checkpoint_gc_request(struct checkpoint_gc *r, int64_t job);

#endif
