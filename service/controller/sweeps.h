/* The sweeps of the leading controller, on a thread of its own: creates the jobs of trials, stores their ends, cancels
 * the jobs of a cancelled sweep, and ends sweeps. scheduler/sweep.h decides. All state is in rows, so that the next
 * leader continues after a crash. Thread-safe.
 *
 * A pass over all open sweeps follows when a sweep was created or cancelled, when a job has ended, and once per
 * SWEEPS_PERIOD_MS. Without open sweeps nothing is read. */
#ifndef SERVICE_CONTROLLER_SWEEPS_H
#define SERVICE_CONTROLLER_SWEEPS_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/controller/job_create.h"

#include <stdint.h>

#define SWEEPS_PERIOD_MS 1000

/* How jobs are created and cancelled. The functions block, and are called by the thread of the sweeps. */
struct sweeps_jobs {
    /* As controller_create. */
    status_t (*create)(void *ctx, const struct job_creation *creation, int64_t *ret_job, struct err *e);
    /* why: becomes the job's reason. ST_OK also for a job that has ended or is being cancelled. */
    status_t (*cancel)(void *ctx, int64_t job, const char *why, struct err *e);
    void *ctx;
};

struct sweeps;
MUST_CHECK status_t sweeps_open(struct store *store, const struct sweeps_jobs *jobs, struct sweeps **ret,
                                struct err *e);
struct sweeps *sweeps_close(struct sweeps *s);
CLEANUP_DEFINE(struct sweeps *, sweeps_close)

void sweeps_lead(struct sweeps *s, int64_t epoch); /* 0: no longer leads */
void sweeps_wake(struct sweeps *s);                /* a sweep was created or cancelled */
void sweeps_job_ended(struct sweeps *s);           /* any job: it may be a trial */

#endif
