/* The progress of each running job, for watchers: the newest values that the ingest has stored. Only in memory, because
 * the database has all values. Bounded by the number of live jobs. Thread-safe. */
#ifndef SERVICE_CONTROLLER_PROGRESS_H
#define SERVICE_CONTROLLER_PROGRESS_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

struct progress_values {
    int64_t step;
    /* NAN = not known */
    double loss, validation_loss, tokens_per_second, samples_per_second;
    double tokens_per_step; /* the product of a step's tokens per second and its time */
};

struct progress;
struct progress *progress_new(void);
struct progress *progress_free(struct progress *p);
CLEANUP_DEFINE(struct progress *, progress_free)

/* name: a double of struct progress_values, or "step_seconds". Of another name only the step counts. Values of an older
 * attempt are ignored. */
void progress_put(struct progress *p, int64_t job, int attempt, int64_t step, const char *name, double value);
/* False: there are no values of the job. */
bool progress_get(struct progress *p, int64_t job, struct progress_values *ret);
/* The progress of a job that has ended, or that is paused, is dropped. */
void progress_forget(struct progress *p, int64_t job);

#endif
