/* The series of single sweeps, jobs, executors and devices. */
#ifndef SERVICE_HTTP_METRICS_OBJECTS_H
#define SERVICE_HTTP_METRICS_OBJECTS_H

#include "service/controller/dispatch.h"
#include "service/controller/progress.h"
#include "service/http/exposition.h"
#include "service/store/job.h"
#include "service/store/rank_seconds.h"
#include "service/store/sweep.h"

/* Sweeps that have not ended. sweeps: [n], from store_sweep_briefs. */
void metrics_put_sweeps(struct exposition *x, const struct store_sweep_brief *sweeps, size_t n);
/* Jobs that have not ended. jobs: [n], from store_job_briefs. */
void metrics_put_jobs(struct exposition *x, struct progress *progress, const struct store_job_brief *jobs, size_t n);
/* The rank-seconds of those among the n jobs that have had an attempt. seconds: [n_seconds], by job. */
void metrics_put_rank_seconds(struct exposition *x, const struct store_job_brief *jobs, size_t n,
                              const struct store_job_seconds *seconds, size_t n_seconds);
/* Attached executors, and their devices. */
void metrics_put_executors(struct exposition *x, struct dispatch *dispatch);

#endif
