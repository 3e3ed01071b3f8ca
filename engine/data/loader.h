/* Training batches of one rank, made by threads ahead of the step loop, from any source.
 *
 *     struct loader_config config = { .source = source, .seed = 1, .global_batch = 12, .micro_batch = 6,
 *                                     .micro_batches = mine, .n_micro_batches = 1, .first_step = 0, .steps = 2000 };
 *     TRY(loader_open(&config, &loader, e));
 *     for each step, for each k of mine:  TRY(loader_next(loader, step, k, &batch, e));     // batch.of[BATCH_TOKENS]
 *
 * Sample j of micro-batch k of a step is sample number first_sample + (step - first_step) * global_batch
 * + k * micro_batch + j of the source's training split: the layout changes which rank makes a batch, never its content.
 * Batches outside this order (validation, a step that is run again) are read with source_read.
 *
 * Threads: one thread calls loader_next; the loader has its own threads that make batches, as many ahead as
 * loader_ahead says. Neither number changes a batch. */
#ifndef ENGINE_DATA_LOADER_H
#define ENGINE_DATA_LOADER_H

#include "base/cleanup.h"
#include "base/status.h"
#include "engine/data/source.h"

#include <stdbool.h>
#include <stdint.h>

enum { LOADER_MAX = 64, LOADER_AHEAD = 3, LOADER_THREADS = 4 };

/* Memory for batches. NULL functions: malloc. Both are called by loader_open and loader_close only. */
struct loader_memory {
    status_t (*make)(void *ctx, size_t bytes, void **ret, struct err *e);
    void (*free)(void *ctx, void *p);
    void *ctx;
};

struct loader_config {
    const struct source *source; /* borrowed until loader_close */
    int64_t seed;
    int global_batch, micro_batch; /* samples; micro_batch = B divides global_batch */
    const int *micro_batches;      /* this rank's k of each step, in the order of the calls; copied */
    int n_micro_batches;           /* >= 1 */
    int64_t first_step, steps;     /* steps first_step .. steps - 1, in order */
    int64_t first_sample;          /* of first_step */
    unsigned inputs;               /* bit i: batch input i is requested; 0 = all that the source has */
    int threads;                   /* that make batches, at most LOADER_MAX; 0 = loader_threads */
    int ahead;                     /* batches that are made ahead, at most LOADER_MAX; 0 = by loader_ahead */
    int valid;                     /* batches that stay valid, including the newest; 0 = 1 */
    struct loader_memory memory;
};

/* Borrowed: valid until config.valid more calls of loader_next. */
struct loader_batch {
    const void *of[BATCH_INPUTS]; /* batch.h; NULL = not requested, or not available */
};

struct loader;

/* The number of threads: the source's recommendation, or one for each LOADER_THREAD_NUMBERS numbers of a batch if that
 * is more; 1 .. LOADER_THREADS. A core makes about 10^9 numbers of cached images per second: 256 images of 224 x 224
 * take one core as long as a whole step of ResNet-50 takes a GPU. */
enum { LOADER_THREAD_NUMBERS = 8 << 20 };
int loader_threads(const struct loader_config *config);

/* The batches that are made ahead if `threads` and `ahead` are given, or 0: at least LOADER_AHEAD, and one for each
 * given thread. */
int loader_ahead(int threads, int ahead);

/* RESOURCE_EXHAUSTED: no memory for the ring, or a thread could not be started. */
MUST_CHECK status_t loader_open(const struct loader_config *config, struct loader **ret, struct err *e);
struct loader *loader_close(struct loader *l);
CLEANUP_DEFINE(struct loader *, loader_close)

/* The batch of micro-batch k of this step; (step, k) must come in the order of the configuration. Waits if the batch is
 * not ready. Errors as source_read; after one, every later call repeats it. */
MUST_CHECK status_t loader_next(struct loader *l, int64_t step, int k, struct loader_batch *ret, struct err *e);

/* The time that loader_next has waited in all. Of each wait the part counts as read that its batch spent in opening and
 * reading files; the rest was decoding. */
struct loader_waits {
    int64_t ns, read_ns;
};
struct loader_waits loader_waits(const struct loader *l);

#endif
