/* Checkpoints in a store that are sampled or verified. trainyard-data copies one to a folder of this host before the
 * worker starts (text_samples.h), with the keys of its job, and keeps the copies until the worker has ended. A
 * verification gets copies of its own, so that each byte comes from the store.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_SAMPLE_COPIES_H
#define EXECUTOR_AGENT_SAMPLE_COPIES_H

#include "base/status.h"
#include "executor/agent/host.h"

#include <stdbool.h>
#include <trainyard/v1/dispatch.pb-c.h>

struct sample_copies;

struct sample_copies_owner {
    void *ctx;
    /* The checkpoint is in `folder`, which is below `local`. The owner calls sample_copies_end later. */
    void (*ready)(void *ctx, const Trainyard__V1__StartSample *start, const char *local, const char *folder);
    void (*failed)(void *ctx, int64_t sample, status_t st, const char *why);
};

struct sample_copies *sample_copies_new(const struct host *host, const struct sample_copies_owner *owner);
struct sample_copies *sample_copies_free(struct sample_copies *cs); /* NULL is fine; returns NULL */

/* Whether the order's checkpoint is in a store. */
bool sample_copies_needed(const Trainyard__V1__StartSample *start);
/* The order is copied; its keys are overwritten when they were passed on. */
void sample_copies_start(struct sample_copies *cs, const Trainyard__V1__StartSample *start);
/* The sample is over, or not wanted any more. Neither function of the owner is called for it after this. */
void sample_copies_end(struct sample_copies *cs, int64_t sample);
void sample_copies_end_all(struct sample_copies *cs); /* NULL is fine */

#endif
