/* Opens a checkpoint's step folder, proves that all of it is what was written, and gives out its tensors by name and
 * range, whatever number of ranks wrote it. It needs the files alone, no database.
 *
 *     TRY(checkpoint_reader_open(".../step-500", &options, &reader, e));
 *     const struct checkpoint_info *info = checkpoint_reader_info(reader);
 *     TRY(checkpoint_reader_read(reader, "wte.weight", 0, vocabulary * width, wte, e));
 *
 * Open reads every byte of every file once: each JSON file carries a digest of itself, each rank's table the digest of
 * its safetensors file, and the manifest every tensor's digest, which the chunks' digests, computed on the way, must
 * add up to. So one flipped bit, a file cut short, lost or exchanged for another is DATA_LOSS, with the file's name and
 * what is wrong. Tensors are read afterwards, range by range, straight to where the caller wants them: a rank needs
 * memory for what it asks for, and during open 32 bytes for each 4 KiB of the checkpoint.
 *
 * Files stay open until close, so a folder that is deleted meanwhile can still be read. Threads: one at a time. */
#ifndef EXECUTOR_ENGINE_CHECKPOINT_READER_H
#define EXECUTOR_ENGINE_CHECKPOINT_READER_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/checkpoint/tensor.h"

#include <stdint.h>

struct checkpoint_info {
    int64_t step, updates, skipped; /* as checkpoint_snapshot has them */
    double loss_scale;              /* fp16's; 0 = none */
    int64_t growth_count;
    const double *spike_norms; /* (n_spike_norms), oldest first; at most CHECKPOINT_NORMS */
    int n_spike_norms;
    int world_size; /* of the ranks that wrote it */
    const char *numerics_id, *data_sha256, *weights_sha256;
    const char *spec_json, *layout_json, *tokenizer_json; /* as the writer was given them, keys in their order */
    const struct checkpoint_tensor *tensors;              /* sorted by name */
    int n_tensors;
};

/* May be NULL in open. progress is called after every few MiB that were verified or read. */
struct checkpoint_reader_options {
    void (*progress)(void *ctx);
    void *ctx;
};

struct checkpoint_reader;

/* NOT_FOUND: no such folder. DATA_LOSS: no manifest in it, or any fault in any file. */
MUST_CHECK status_t checkpoint_reader_open(const char *directory, const struct checkpoint_reader_options *options,
                                           struct checkpoint_reader **ret, struct err *e);
struct checkpoint_reader *checkpoint_reader_close(struct checkpoint_reader *r);
CLEANUP_DEFINE(struct checkpoint_reader *, checkpoint_reader_close)

/* The manifest's layout alone, of which nothing but the manifest's own digest is proved. Free it with free(). */
MUST_CHECK status_t checkpoint_layout(const char *directory, char **ret, struct err *e);

/* The records of all ranks that wrote it (checkpoint_snapshot.record), one behind another, each text once: that of
 * `rank` first, then the others' in the order of ranks; "" where none has any, as in the first checkpoints of this
 * format. So a run that goes on with as many ranks gives each its own, and any other gives each what there is. Of the
 * files nothing but the digests of manifest and tables is proved. Errors: as checkpoint_reader_open. Free it with
 * free(). */
MUST_CHECK status_t checkpoint_records(const char *directory, int rank, char **ret, struct err *e);

/* Lives as long as the reader. */
const struct checkpoint_info *checkpoint_reader_info(const struct checkpoint_reader *r);

/* The tensor of this name, or NULL. */
const struct checkpoint_tensor *checkpoint_reader_find(const struct checkpoint_reader *r, const char *name);

/* data (count) = elements [first, first + count) of the tensor. NOT_FOUND: no such tensor; OUT_OF_RANGE: outside it;
 * DATA_LOSS: the file became shorter since open. */
MUST_CHECK status_t checkpoint_reader_read(struct checkpoint_reader *r, const char *name, int64_t first, int64_t count,
                                           float *data, struct err *e);

#endif
