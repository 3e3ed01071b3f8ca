/* Job garbage collection: removes the files of deleted jobs, then their rows in batches, on a thread of its own. With
 * keep_ended_days it also deletes jobs and sweeps that ended long ago. The next leader continues after a crash.
 *
 * A job's rows stay until its files are known to be gone (checkpoint_files.h), because only the rows name them, and
 * until no other job needs one of its checkpoints. It is retried after a second, then after longer pauses up to a
 * minute. Thread-safe. */
#ifndef SERVICE_CONTROLLER_JOB_GC_H
#define SERVICE_CONTROLLER_JOB_GC_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#include <stdint.h>

/* The interval of passes without a request. */
#define JOB_GC_PERIOD_MS 60000
/* The most jobs that one pass marks as deleted, and executors that it forgets. */
#define JOB_GC_MAX_MARKS 1000
/* The most sweeps that one pass deletes, each with the rows of at most 10,000 trials. */
#define JOB_GC_MAX_SWEEPS 10

struct checkpoint_place;
struct job_gc;
/* keep_ended_days: jobs that ended more days ago are deleted; 0 = all are kept. forget_lost_days: executors that were
 * lost more days ago are forgotten; 0 = all are kept. */
MUST_CHECK status_t job_gc_open(struct store *store, const struct checkpoint_place *place, int keep_ended_days,
                                int forget_lost_days, struct job_gc **ret, struct err *e);
struct job_gc *job_gc_close(struct job_gc *p);
CLEANUP_DEFINE(struct job_gc *, job_gc_close)

void job_gc_lead(struct job_gc *p, int64_t epoch);
void job_gc_wake(struct job_gc *p); /* a job was deleted */

#endif
