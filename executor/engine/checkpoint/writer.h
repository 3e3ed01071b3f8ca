/* Writes one rank's part of checkpoints, in a thread of its own, from a snapshot that the engine has taken.
 *
 *     TRY(checkpoint_writer_open(&config, &writer, e));
 *     if (!checkpoint_writer_busy(writer)) {       // else: skip, by the flag that all ranks OR
 *         memcpy every piece into the snapshot buffer;
 *         TRY(checkpoint_writer_submit(writer, &snapshot, e));     // returns at once
 *     }
 *     ... done(ctx, &result) is called from the writer's thread ...
 *     TRY(checkpoint_writer_wait(writer, e));      // before the end, or before the final checkpoint
 *
 * What is written, below `directory`:
 *
 *     step-<S>/rank-<r>.safetensors   this rank's pieces
 *     step-<S>/rank-<r>.json          their table: names and ranges; the file's size and SHA-256
 *     step-<S>/manifest.json          rank 0 only, its last file: everything else (manifest.h)
 *
 * Each file is written under a temporary name, fsynced, renamed, and its folder fsynced. A failure at any point is a
 * result with its sentence; no file that is not whole ever has its final name, and what was begun is removed.
 *
 * Chunk digests of all ranks are exchanged before the first byte is written, in batches of bounded size, so that the
 * manifest names every tensor's digest and every rank knows weights_sha256. So a submit on one rank goes with one on
 * every other. Which rank writes which piece is the caller's business: any cut will do as long as the ranks' pieces
 * cover every tensor once, and the digests are the same whatever the cut.
 *
 * Memory: the snapshot's tensors, pieces, data and record are borrowed until `done` was called for it; its norms are
 * copied. Threads: open, submit, wait and close belong to one thread; busy may be asked from any. */
#ifndef EXECUTOR_ENGINE_CHECKPOINT_WRITER_H
#define EXECUTOR_ENGINE_CHECKPOINT_WRITER_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/checkpoint/tensor.h"

#include <stdbool.h>
#include <stdint.h>

/* What every rank's blob becomes on all ranks: collective_exchange on a channel that only this writer uses. */
typedef status_t checkpoint_exchange_fn(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e);

/* What happened to one snapshot. Strings are valid during the call. */
struct checkpoint_result {
    status_t status;
    const char *message; /* the sentence when status is not ST_OK, else "" */
    int64_t step;
    const char *directory;      /* the step folder */
    const char *file;           /* "rank-<r>.safetensors" */
    int64_t bytes;              /* of that file */
    const char *sha256;         /* of that file, hex */
    const char *weights_sha256; /* of the whole model, hex, on every rank */
    void *tag;                  /* the snapshot's */
};

/* All strings and pointers are borrowed until close. */
struct checkpoint_writer_config {
    const char *directory; /* step folders are made below it; made itself when missing */
    int rank, world_size;
    const char *spec_json;      /* the resolved spec, a JSON object */
    const char *layout_json;    /* how the job was laid out, a JSON object, e.g. {"data":2} */
    const char *tokenizer_json; /* tokenizer_to_json, or "{}" */
    const char *data_sha256;    /* source_info's, or "" */
    const char *numerics_id;
    checkpoint_exchange_fn *exchange; /* may be NULL when world_size is 1 */
    void *exchange_ctx;
    void (*done)(void *ctx, const struct checkpoint_result *result); /* from the writer's thread */
    void *done_ctx;
};

struct checkpoint_snapshot {
    int64_t step;              /* batches consumed */
    int64_t updates, skipped;  /* updates that the optimizer's states have; steps that were skipped */
    double loss_scale;         /* fp16's; 0 = none */
    int64_t growth_count;      /* applied steps since that changed */
    const double *spike_norms; /* (n_spike_norms), oldest first; at most CHECKPOINT_NORMS */
    int n_spike_norms;
    const struct checkpoint_tensor *tensors; /* all of the model, equal on every rank */
    int n_tensors;
    const struct checkpoint_piece *pieces; /* what this rank writes */
    const float *const *data;              /* data[i] = pieces[i].count elements */
    int n_pieces;
    const char *record; /* what this rank's kernels have chosen, as its table keeps it; NULL: nothing */
    void *tag;
};

struct checkpoint_writer;

MUST_CHECK status_t checkpoint_writer_open(const struct checkpoint_writer_config *config,
                                           struct checkpoint_writer **ret, struct err *e);
/* Waits for the snapshot in work, then ends the thread. */
struct checkpoint_writer *checkpoint_writer_close(struct checkpoint_writer *w);
CLEANUP_DEFINE(struct checkpoint_writer *, checkpoint_writer_close)

/* Has a snapshot that is not done. */
bool checkpoint_writer_busy(const struct checkpoint_writer *w);

/* Hands a snapshot over. FAILED_PRECONDITION while busy; INVALID_ARGUMENT names a bad tensor, or tells of a record of
 * CHECKPOINT_RECORD_BYTES or more. */
MUST_CHECK status_t checkpoint_writer_submit(struct checkpoint_writer *w, const struct checkpoint_snapshot *snapshot,
                                             struct err *e);

/* Returns when the writer is idle, or after so long; true when it is idle. */
bool checkpoint_writer_wait_ms(struct checkpoint_writer *w, int ms);

/* Returns when the writer is idle, with the status and sentence of the newest snapshot (OK when there was none). */
MUST_CHECK status_t checkpoint_writer_wait(struct checkpoint_writer *w, struct err *e);

#endif
