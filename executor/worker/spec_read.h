/* A job spec from a file and --set changes, resolved: the first step of the commands of trainyard-train.
 *
 *     struct spec_changes changes = { .items = { "train.steps=10" }, .n = 1 };
 *     Trainyard__V1__JobSpec *spec = NULL;
 *     TRY(spec_read("job.yaml", &changes, &spec, e));      // "-" is standard input
 *     spec = spec_free(spec); */
#ifndef EXECUTOR_WORKER_SPEC_READ_H
#define EXECUTOR_WORKER_SPEC_READ_H

#include "base/status.h"

#include <stdbool.h>
#include <trainyard/v1/spec.pb-c.h>

enum { SPEC_CHANGES_MAX = 64 };

struct spec_changes {
    const char *items[SPEC_CHANGES_MAX]; /* KEY.PATH=VALUE, borrowed */
    int n;
};

/* False if there are SPEC_CHANGES_MAX already. */
bool spec_changes_add(struct spec_changes *c, const char *change);

/* YAML or JSON. INVALID_ARGUMENT names what is wrong; every further problem of the spec is printed to stderr, a line
 * each. Free the spec with spec_free. */
MUST_CHECK status_t spec_read(const char *file, const struct spec_changes *changes, Trainyard__V1__JobSpec **ret,
                              struct err *e);

/* The same for a job that resumes from a checkpoint's folder: where the spec leaves the cut into micro-batches open,
 * the checkpoint's goes on, as far as it divides the batch. resume may be NULL. */
MUST_CHECK status_t spec_read_resumed(const char *file, const struct spec_changes *changes, const char *resume,
                                      Trainyard__V1__JobSpec **ret, struct err *e);

/* The threads of each of n ranks on this machine, which has no others: its cores divided by the ranks, and no more than
 * resources.cores. */
int spec_threads(const Trainyard__V1__JobSpec *spec, int ranks);

#endif
