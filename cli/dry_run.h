/* submit --dry-run. */
#ifndef CLI_DRY_RUN_H
#define CLI_DRY_RUN_H

#include "cli/command.h"

#include <trainyard/v1/job.pb-c.h>

/* Lets the service check the request as CreateJob does, and prints every problem, or the plan, whether the job would
 * start now, and the resolved spec. Stores nothing. */
MUST_CHECK status_t dry_run(struct cli *c, const char *file, const Trainyard__V1__CreateJobRequest *request,
                            struct err *e);

#endif
