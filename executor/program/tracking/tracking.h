/* Metrics of an unchanged program: what it writes for the trackers of the field becomes rows of metrics.
 *
 *     struct tracking *t = tracking_open(&options);          // before the command starts; never fails
 *     for (i = 0; i < tracking_variables(t, &variables); i++) // for the command's environment
 *     poll tracking_fd(t) and tracking_files_fd(t) until tracking_due(t); tracking_run(t);
 *     tracking_end(t);                                        // when no process of the command is left
 *
 * What cannot be opened is reported by an event, and the program runs without it. One thread. */
#ifndef EXECUTOR_PROGRAM_TRACKING_TRACKING_H
#define EXECUTOR_PROGRAM_TRACKING_TRACKING_H

#include "base/clock.h"
#include "executor/program/tracking/artifacts.h"
#include "executor/program/tracking/points.h"

struct tracking_options {
    const char *scratch;     /* the rank's private folder */
    const char *work;        /* TRAINYARD_WORK */
    const char *tensorboard; /* a folder of the program with event files; NULL or empty: none */
    struct points_sink sink; /* gets the rows and the events */
    void (*tick)(void *ctx); /* of the sink's ctx: called again and again during long work */
    /* Of the sink's ctx: a file was stored (artifacts.h). */
    void (*artifact)(void *ctx, const char *path, int64_t bytes, const char *sha256);
};

struct tracking;
struct tracking *tracking_open(const struct tracking_options *options);
struct tracking *tracking_close(struct tracking *t);
CLEANUP_DEFINE(struct tracking *, tracking_close)

/* A variable for the command, unless the user gives it, or one of `unless` (which ends with NULL), a value: the user
 * then has another server. */
struct tracking_variable {
    const char *name, *value;
    const char *const *unless;
};
size_t tracking_variables(const struct tracking *t, const struct tracking_variable **ret);

/* The open folder of the job, in which the files are kept that the program logs; -1: none. */
void tracking_folder(struct tracking *t, int job, int attempt, int rank);

/* The values of one line of the metrics FIFO. */
void tracking_row(struct tracking *t, int64_t step, char *const *names, const double *values, size_t n);

int tracking_fd(const struct tracking *t); /* -1: none */
int tracking_files_fd(const struct tracking *t);
deadline_ms_t tracking_due(const struct tracking *t);
void tracking_run(struct tracking *t);
/* Reads what the program had written before this call, for about a second at most: a checkpoint is reported after the
 * metrics of its steps. A request that is still under way is not waited for. */
void tracking_settle(struct tracking *t);
/* Reads what is left. */
void tracking_end(struct tracking *t);

#endif
