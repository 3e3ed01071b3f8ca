/* Training batches of one rank, made ahead of the step loop by threads, from any source.
 *
 *     struct loader_config config = { .source = source, .seed = 1, .global_batch = 12, .micro_batch = 6,
 *                                     .micro_batches = mine, .n_micro_batches = 1, .first_step = 0, .steps = 2000 };
 *     TRY(loader_open(&config, &loader, e));
 *     for each step, for each k of mine:  TRY(loader_next(loader, step, k, &batch, e));     // batch.of[BATCH_TOKENS]
 *
 * Sample j of micro-batch k of a step is sample number step * global_batch + k * micro_batch + j of the source's
 * training part, whoever asks: the layout changes which rank makes a batch, never what is in it. A batch beside this
 * order (validation, a step once more) is read with source_read.
 *
 * Threads: one thread calls loader_next; those that make batches are the loader's own. They are less than LOADER_RING
 * batches ahead. */
#ifndef EXECUTOR_ENGINE_DATA_LOADER_H
#define EXECUTOR_ENGINE_DATA_LOADER_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/data/source.h"

#include <stdbool.h>
#include <stdint.h>

enum { LOADER_RING = 4 };

/* Where batches are made. NULL functions: malloc's. Both are called by loader_open and loader_close alone. */
struct loader_memory {
    status_t (*make)(void *ctx, size_t bytes, void **ret, struct err *e);
    void (*free)(void *ctx, void *p);
    void *ctx;
};

struct loader_config {
    const struct source *source; /* borrowed until loader_close */
    int64_t seed;
    int global_batch, micro_batch; /* samples; micro_batch = B divides global_batch */
    const int *micro_batches;      /* this rank's k of each step, in the order they are asked for; copied */
    int n_micro_batches;           /* >= 1 */
    int64_t first_step, steps;     /* steps first_step .. steps - 1 are asked for, in order */
    unsigned inputs;               /* bit i: batch input i is wanted; 0 = all that the source has */
    int threads;                   /* that make batches, at most LOADER_RING; 0 = as many as the source says */
    int kept;                      /* batches that stay valid, the newest included; 0 = 1 */
    struct loader_memory memory;
};

/* Borrowed: valid until `kept` more calls of loader_next. */
struct loader_batch {
    const void *of[BATCH_INPUTS]; /* batch.h; NULL = not wanted, or not there */
};

struct loader;

/* RESOURCE_EXHAUSTED: no memory for the ring, or no thread. */
MUST_CHECK status_t loader_open(const struct loader_config *config, struct loader **ret, struct err *e);
struct loader *loader_close(struct loader *l);
CLEANUP_DEFINE(struct loader *, loader_close)

/* The batch of micro-batch k of this step; (step, k) must come in the order that the configuration says. Waits for the
 * prefetch thread when it is behind. Errors as source_read; after one, every later call repeats it. */
MUST_CHECK status_t loader_next(struct loader *l, int64_t step, int k, struct loader_batch *ret, struct err *e);

/* Time that loader_next has waited for the prefetch thread so far. */
int64_t loader_wait_ns(const struct loader *l);

#endif
