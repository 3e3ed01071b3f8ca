#include "executor/program/tracking/runs.h"

#include <stdio.h>
#include <string.h>

struct run *runs_find(struct runs *runs, const char *id) {
    for (int i = 0; i < runs->n; i++)
        if (strncmp(runs->all[i].id, id, RUN_ID_BYTES - 1) == 0)
            return &runs->all[i];
    return NULL;
}

static struct run *share_last(struct runs *runs, struct points *points) {
    struct run *last = &runs->all[RUNS_MAX - 1];
    if (!last->shared)
        points_event(points, "tracking_run",
                     "the program began more than %d runs: the metrics of all further ones "
                     "begin with '%s'",
                     RUNS_MAX, last->prefix);
    last->shared = true;
    return last;
}

struct run *runs_get(struct runs *runs, struct points *points, const char *id) {
    struct run *run = runs_find(runs, id);
    if (run)
        return run;
    if (runs->n == RUNS_MAX)
        return share_last(runs, points);
    run = &runs->all[runs->n++];
    *run = (struct run){ .step = -1 };
    snprintf(run->id, sizeof run->id, "%s", id);
    if (runs->n > 1)
        snprintf(run->prefix, sizeof run->prefix, "run-%d/", runs->n);
    return run;
}
