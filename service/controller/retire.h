/* Retention: old checkpoints go when newer ones are committed. Two phases: the rows become DELETING, their folders are
 * removed (checkpoint_files.h), the rows become DELETED. What fails between is gone on with a second later, then after
 * longer pauses up to a minute, and by the next leader. What was only asked for is in memory alone: who begins to lead
 * looks through all jobs for what an earlier leader died before it marked. Rows whose folders are not in reach stay
 * DELETING. Thread-safe. */
#ifndef SERVICE_CONTROLLER_RETIRE_H
#define SERVICE_CONTROLLER_RETIRE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#include <stdint.h>

/* How often it looks for what is DELETING without being told. */
#define RETIRE_LOOK_MS 60000
/* Jobs that wait to be looked at; where more are asked for, all jobs are looked through instead. */
#define RETIRE_WAITING 256

struct retire;
MUST_CHECK status_t retire_open(struct store *store, const char *checkpoints, struct retire **ret, struct err *e);
struct retire *retire_close(struct retire *r);
CLEANUP_DEFINE(struct retire *, retire_close)

void retire_lead(struct retire *r, int64_t epoch);
/* A checkpoint of the job was committed, unpinned or deleted, or the job has ended. */
void retire_soon(struct retire *r, int64_t job);

#endif
