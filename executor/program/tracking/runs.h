/* The runs of a tracker's client. The first run that the program uses is the job's own: its metrics have their plain
 * names. The metrics of each further run have its number before their names: "run-2/loss". At most RUNS_MAX runs are
 * told apart; further ones share the last number, and an event reports it.
 *
 * One thread. */
#ifndef EXECUTOR_PROGRAM_TRACKING_RUNS_H
#define EXECUTOR_PROGRAM_TRACKING_RUNS_H

#include "executor/program/tracking/points.h"

#include <stdbool.h>
#include <stdint.h>

enum { RUNS_MAX = 64, RUN_ID_BYTES = 80 };

struct run {
    char id[RUN_ID_BYTES]; /* a longer one is cut */
    char prefix[16];       /* "" for the first */
    bool shared;           /* by several ids */
    /* of the history of a W&B client: */
    int64_t lines;  /* that were taken: the client repeats some after a failure */
    int64_t step;   /* `_step` of the last one */
    uint64_t first; /* a hash of the first one */
};

struct runs {
    struct run all[RUNS_MAX];
    int n;
};

/* NULL: there is none of this id. */
struct run *runs_find(struct runs *runs, const char *id);
/* The run of this id; a new one if there was none. */
struct run *runs_get(struct runs *runs, struct points *points, const char *id);

#endif
