/* The metrics of a job as files. Both write under another name (export_file.h), so that a file is whole or absent; one
 * that exists already is refused, unless `overwrite`. */
#ifndef CLI_EXPORT_H
#define CLI_EXPORT_H

#include "cli/command.h"

#include <trainyard/v1/metric.pb-c.h>

struct export_target {
    const char *job;  /* "jobs/42" */
    const char *path; /* a file, or - for standard output; a folder */
    bool overwrite;
};
MUST_CHECK status_t export_csv(struct cli *c, const struct export_target *to, struct err *e);
/* path/rank-R/events.out.tfevents.trainyard of each rank: a run of TensorBoard's a rank. */
MUST_CHECK status_t export_tensorboard(struct cli *c, const struct export_target *to, struct err *e);

/* Hands every point of the job to `take`, page by page, and tells on stderr how many there were. */
typedef status_t export_take_fn(void *ctx, const Trainyard__V1__MetricPoints *run, struct err *e);
MUST_CHECK status_t export_points(struct cli *c, const char *job, export_take_fn *take, void *ctx, struct err *e);

#endif
