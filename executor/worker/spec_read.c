#include "executor/worker/spec_read.h"

#include "api/spec/file.h"
#include "api/spec/spec.h"
#include "base/cores.h"

#include <stdio.h>

bool spec_changes_add(struct spec_changes *c, const char *change) {
    if (c->n == SPEC_CHANGES_MAX)
        return false;
    c->items[c->n++] = change;
    return true;
}

static status_t resolve(const Trainyard__V1__JobSpec *given, Trainyard__V1__JobSpec **ret, struct err *e) {
    struct spec_problems problems = { 0 };
    status_t st = spec_resolve(given, ret, &problems, e);
    for (size_t i = 1; i < problems.n; i++)
        fprintf(stderr, "trainyard-train: %s\n", problems.lines[i]);
    spec_problems_done(&problems);
    return st;
}

status_t spec_read(const char *file, const struct spec_changes *changes, Trainyard__V1__JobSpec **ret, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *given = NULL;
    TRY(spec_file_read(file, &given, e));
    TRY(spec_change(given, changes->items, (size_t)changes->n, e));
    return resolve(given, ret, e);
}

int spec_threads(const Trainyard__V1__JobSpec *spec, int ranks) {
    const int share = cores_per_rank(cores_allowed(), ranks), wanted = spec->resources->cores;
    return wanted > 0 && wanted < share ? wanted : share;
}
