/* Batches of one rank, made ahead by a thread: (B,T) tokens and their targets (the same windows one token later).
 *
 *     struct loader_config config = { .corpus = corpus, .seed = 1, .context = 64, .global_batch = 12, .micro_batch = 6,
 *                                     .micro_batches = mine, .n_micro_batches = 1, .first_step = 0, .steps = 2000 };
 *     TRY(loader_open(&config, &loader, e));
 *     for each step, for each k of mine:  TRY(loader_next(loader, step, k, &batch, e));
 *
 * Sample j of micro-batch k of a step is sample number step * global_batch + k * micro_batch + j of the job
 * (sampler.h), whoever asks: the layout changes which rank makes a batch, never what is in it.
 *
 * Threads: one thread calls loader_next and loader_validation; the prefetch thread is the loader's own. It is at most
 * LOADER_RING batches ahead. */
#ifndef EXECUTOR_ENGINE_DATA_LOADER_H
#define EXECUTOR_ENGINE_DATA_LOADER_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/data/corpus.h"

#include <stdbool.h>
#include <stdint.h>

enum { LOADER_RING = 4 };

struct loader_config {
    const struct corpus *corpus; /* borrowed until loader_close */
    int64_t seed;
    int context;                   /* T */
    int global_batch, micro_batch; /* samples; micro_batch = B divides global_batch */
    const int *micro_batches;      /* this rank's k of each step, in the order they are asked for; copied */
    int n_micro_batches;           /* >= 1 */
    int64_t first_step, steps;     /* steps first_step .. steps - 1 are asked for, in order */
};

/* Borrowed: valid until the next loader_next. */
struct loader_batch {
    const int32_t *tokens;  /* (B,T) */
    const int32_t *targets; /* (B,T) */
};

struct loader;

/* INVALID_ARGUMENT names what is missing when the training part is shorter than context + 1 tokens. */
MUST_CHECK status_t loader_open(const struct loader_config *config, struct loader **ret, struct err *e);
struct loader *loader_close(struct loader *l);
CLEANUP_DEFINE(struct loader *, loader_close)

/* The batch of micro-batch k of this step; (step, k) must come in the order that the configuration says. Waits for the
 * prefetch thread when it is behind. Errors as corpus_read; after one, every later call repeats it. */
MUST_CHECK status_t loader_next(struct loader *l, int64_t step, int k, struct loader_batch *ret, struct err *e);

/* Validation samples first .. first + B - 1 into tokens and targets (B,T), made in the calling thread. Sample number i
 * is the same window at every evaluation, in every layout. INVALID_ARGUMENT when the validation part is shorter than
 * context + 1 tokens (ask loader_has_validation). */
MUST_CHECK status_t loader_validation(struct loader *l, int64_t first, int B, int32_t *tokens, int32_t *targets,
                                      struct err *e);
bool loader_has_validation(const struct loader *l);

/* Time that loader_next has waited for the prefetch thread so far. */
int64_t loader_wait_ns(const struct loader *l);

#endif
