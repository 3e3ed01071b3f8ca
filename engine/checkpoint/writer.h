/* Writes one rank's part of checkpoints from a snapshot, on a thread of its own.
 *
 *     TRY(checkpoint_writer_open(&config, &writer, e));
 *     if (!checkpoint_writer_busy(writer)) {       // else all ranks skip this checkpoint
 *         copy every segment into the snapshot buffer;
 *         TRY(checkpoint_writer_submit(writer, &snapshot, e));     // returns at once
 *     }
 *     ... done(ctx, &result) is called from the writer's thread ...
 *     TRY(checkpoint_writer_wait(writer, e));      // before the end, or before the final checkpoint
 *
 * Files, below `directory`:
 *
 *     step-<S>/rank-<r>.safetensors   this rank's segments
 *     step-<S>/rank-<r>.json          their table: names and ranges; the file's size and SHA-256
 *     step-<S>/manifest.json          rank 0 only, its last file: everything else (manifest.h)
 *
 * Each file is written under a temporary name, fsynced, renamed, and its folder fsynced. The result reports a failure
 * at any point. An incomplete file never has its final name, and started files are removed.
 *
 * With `keep` the files are on their way to another place: it is called when this rank's files are complete, and takes
 * them there. Then they are removed. The result is good only if `keep` succeeds.
 *
 * Chunk digests of all ranks are exchanged before the first byte is written, in batches of bounded size, so that the
 * manifest has every tensor's digest and every rank knows weights_sha256. Every rank must therefore submit the same
 * checkpoints. The caller chooses which rank writes which segment: the segments of all ranks must cover every tensor
 * exactly once, and the digests do not depend on the division.
 *
 * Memory: the snapshot's tensors, segments, data and tuning cache are borrowed until `done` was called for it; its
 * norms are copied. Threads: open, submit, wait and close belong to one thread; busy may be called from any. */
#ifndef ENGINE_CHECKPOINT_WRITER_H
#define ENGINE_CHECKPOINT_WRITER_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "engine/checkpoint/exchange.h"
#include "engine/checkpoint/tensor.h"

#include <stdbool.h>
#include <stdint.h>

/* The result of one snapshot. Strings are valid during the call. */
struct checkpoint_result {
    status_t status;
    const char *message; /* the error message, or "" if status is ST_OK */
    int64_t step;
    const char *directory;      /* the step folder */
    const char *file;           /* "rank-<r>.safetensors" */
    int64_t bytes;              /* of that file */
    const char *sha256;         /* of that file, hex */
    const char *weights_sha256; /* of the whole model, hex, on every rank */
    void *tag;                  /* the snapshot's */
};

struct roots;

/* All strings and pointers are borrowed until close. */
struct checkpoint_writer_config {
    const char *directory;     /* step folders are made in it; created if it is missing */
    const struct roots *roots; /* that it must lie below (base/roots.h); NULL: anywhere */
    int rank, world_size;
    const char *spec_json;      /* the resolved spec, a JSON object */
    const char *layout_json;    /* the layout of the job, a JSON object, e.g. {"data":2} */
    const char *tokenizer_json; /* tokenizer_to_json, or "{}" */
    const char *data_sha256;    /* source_info's, or "" */
    const char *numerics_id;
    checkpoint_exchange_fn *exchange; /* may be NULL when world_size is 1 */
    void *exchange_ctx;
    void (*done)(void *ctx, const struct checkpoint_result *result); /* from the writer's thread */
    status_t (*keep)(void *ctx, int64_t step, struct err *e); /* from the writer's thread, which waits; NULL: none */
    void *done_ctx;                                           /* of both */
};

struct checkpoint_snapshot {
    int64_t step;              /* batches consumed */
    int64_t updates, skipped;  /* updates of the optimizer's states; steps that were skipped */
    double loss_scale;         /* fp16's; 0 = none */
    int64_t growth_count;      /* applied steps since that changed */
    int64_t samples;           /* consumed */
    int64_t not_finite;        /* the newest steps in a row that were skipped because they were not finite */
    const double *spike_norms; /* (n_spike_norms), oldest first; at most CHECKPOINT_NORMS */
    int n_spike_norms;
    const struct checkpoint_tensor *tensors; /* all of the model, equal on every rank */
    int n_tensors;
    const struct checkpoint_segment *segments; /* the segments that this rank writes */
    const float *const *data;                  /* data[i] = segments[i].count elements */
    int n_segments;
    const char *tuning_cache; /* of this rank's kernels; NULL: none */
    void *tag;
};

struct checkpoint_writer;

/* Memory that writing or proving a checkpoint takes at most, beside the state itself: the digests of one exchange.
 * state_bytes: of the whole gang. */
size_t checkpoint_digest_bytes(size_t state_bytes, size_t own_bytes, int world_size);

MUST_CHECK status_t checkpoint_writer_open(const struct checkpoint_writer_config *config,
                                           struct checkpoint_writer **ret, struct err *e);
/* Waits for the snapshot that is being written, then ends the thread. */
struct checkpoint_writer *checkpoint_writer_close(struct checkpoint_writer *w);
CLEANUP_DEFINE(struct checkpoint_writer *, checkpoint_writer_close)

/* Whether a snapshot is being written. */
bool checkpoint_writer_busy(const struct checkpoint_writer *w);

/* Starts to write a snapshot. FAILED_PRECONDITION while busy; INVALID_ARGUMENT: a bad tensor, or a tuning cache of
 * CHECKPOINT_TUNING_CACHE_BYTES or more. */
MUST_CHECK status_t checkpoint_writer_submit(struct checkpoint_writer *w, const struct checkpoint_snapshot *snapshot,
                                             struct err *e);

/* Waits until the writer is idle, for at most ms milliseconds; returns whether it is idle. */
bool checkpoint_writer_wait_ms(struct checkpoint_writer *w, int ms);

/* Waits until the writer is idle; returns the status and message of the newest snapshot (OK if there was none). */
MUST_CHECK status_t checkpoint_writer_wait(struct checkpoint_writer *w, struct err *e);

#endif
