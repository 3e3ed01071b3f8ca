/* Retention: old checkpoints go when newer ones are committed. Two phases: the rows become DELETING, their folders are
 * removed, the rows become DELETED; what fails or dies between is done again with the job's next checkpoint or its end.
 * After its end only a job that began with one of its checkpoints asks again, when that has its own or has ended; else
 * such rows stay DELETING. A thread of its own, since removing gigabytes takes its time.
 *
 * Only folders that this controller itself named (<checkpoints>/<job>/attempt-<n>/step-<s>) are removed: a path comes
 * from a worker's report, and is compared first. Where the checkpoint directory is not in reach nothing is removed; the
 * rows stay DELETING. Thread-safe. */
#ifndef SERVICE_CONTROLLER_RETIRE_H
#define SERVICE_CONTROLLER_RETIRE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#include <stdint.h>

/* Jobs that wait to be looked at; past it one is left out until its next checkpoint. */
#define RETIRE_WAITING 4096

struct retire;
MUST_CHECK status_t retire_open(struct store *store, const char *checkpoints, struct retire **ret, struct err *e);
struct retire *retire_close(struct retire *r);
CLEANUP_DEFINE(struct retire *, retire_close)

void retire_lead(struct retire *r, int64_t epoch);
/* A checkpoint of the job was committed, or the job has ended. */
void retire_soon(struct retire *r, int64_t job);

#endif
