#include "executor/program/tracking/runs.h"

#include <stdio.h>
#include <string.h>

struct run *runs_get(struct runs *runs, const char *id) {
    for (int i = 0; i < runs->n; i++)
        if (strncmp(runs->all[i].id, id, RUN_ID_BYTES - 1) == 0)
            return &runs->all[i];
    if (runs->n == RUNS_MAX)
        return &runs->all[RUNS_MAX - 1];
    struct run *run = &runs->all[runs->n++];
    *run = (struct run){ .lines = 0 };
    snprintf(run->id, sizeof run->id, "%s", id);
    if (runs->n > 1)
        snprintf(run->prefix, sizeof run->prefix, "run-%d/", runs->n);
    return run;
}
