/* Job garbage collection: removes the files of deleted jobs, then their rows in batches, on a thread of its own. With
 * struct job_gc_days it also deletes what is old. The next leader continues after a crash.
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
/* The most entries of the audit log that one transaction deletes. A pass deletes all that are old enough. */
#define JOB_GC_AUDIT_BATCH 1000

struct checkpoint_place;
struct job_gc;
/* For how many days rows are kept; 0 = for ever. */
struct job_gc_days {
    int ended; /* jobs and sweeps that have ended */
    int lost;  /* executors that are lost */
    int audit; /* entries of the audit log */
};
MUST_CHECK status_t job_gc_open(struct store *store, const struct checkpoint_place *place,
                                const struct job_gc_days *days, struct job_gc **ret, struct err *e);
struct job_gc *job_gc_close(struct job_gc *p);
CLEANUP_DEFINE(struct job_gc *, job_gc_close)

void job_gc_lead(struct job_gc *p, int64_t epoch);
void job_gc_wake(struct job_gc *p); /* a job was deleted */

#endif
