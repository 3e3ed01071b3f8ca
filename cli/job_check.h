/* Checks that a job has the series, rank or attempt that a command asks for. The errors name those that it has. */
#ifndef CLI_JOB_CHECK_H
#define CLI_JOB_CHECK_H

#include "cli/client.h"

#include <stdint.h>
#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/metric.pb-c.h>

/* NOT_FOUND for a rank or an attempt that the job does not have and cannot get. OPTION_ABSENT: not checked. */
MUST_CHECK status_t job_check_rank(struct cli *c, const char *job, int64_t rank, int64_t attempt, struct err *e);

/* For each of the n names without a series in the answer: NOT_FOUND if the job has ended, else a line on stderr,
 * because the series may still appear. Both list the existing series. */
MUST_CHECK status_t job_check_series(struct cli *c, const char *job, char *const *names, size_t n,
                                     const Trainyard__V1__QueryMetricsResponse *answer, struct err *e);

#endif
