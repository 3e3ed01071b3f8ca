/* Writes the metrics of a job to files. Both functions write to a temporary name (export_file.h), so that a file is
 * complete or absent. An existing file is refused, unless `overwrite`. */
#ifndef CLI_EXPORT_H
#define CLI_EXPORT_H

#include "cli/command.h"

#include <trainyard/v1/metric.pb-c.h>

struct export_target {
    const char *job;  /* "jobs/42" */
    const char *path; /* CSV: a file, or - for standard output. TensorBoard: a folder */
    bool overwrite;
};
MUST_CHECK status_t export_csv(struct cli *c, const struct export_target *to, struct err *e);
/* Writes path/rank-R/events.out.tfevents.trainyard for each rank: one TensorBoard run per rank. */
MUST_CHECK status_t export_tensorboard(struct cli *c, const struct export_target *to, struct err *e);

typedef status_t export_take_fn(void *ctx, const Trainyard__V1__MetricPoints *run, struct err *e);
/* Passes every point of the job to `take`, page by page. */
MUST_CHECK status_t points_read(struct cli *c, const char *job, export_take_fn *take, void *ctx, struct err *e);
/* The same, and reports their number on stderr. */
MUST_CHECK status_t export_points(struct cli *c, const char *job, export_take_fn *take, void *ctx, struct err *e);

#endif
