/* The runs of a tracker's client. The first run that the program uses is the job's own: its metrics have their plain
 * names. The metrics of each further run have its number before their names: "run-2/loss". At most RUNS_MAX runs are
 * told apart; further ones share the last number.
 *
 * One thread. */
#ifndef EXECUTOR_PROGRAM_TRACKING_RUNS_H
#define EXECUTOR_PROGRAM_TRACKING_RUNS_H

#include <stdint.h>

enum { RUNS_MAX = 64, RUN_ID_BYTES = 80 };

struct run {
    char id[RUN_ID_BYTES]; /* a longer one is cut */
    char prefix[16];       /* "" for the first */
    int64_t lines;         /* of the client's history that were taken: W&B repeats some after a failure */
};

struct runs {
    struct run all[RUNS_MAX];
    int n;
};

/* The run of this id; a new one if there was none. */
struct run *runs_get(struct runs *runs, const char *id);

#endif
