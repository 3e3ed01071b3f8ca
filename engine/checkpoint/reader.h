/* Opens a checkpoint's step folder, proves that all bytes are as they were written, and returns its tensors by name and
 * range, for any number of ranks that wrote it. It needs only the files, no database.
 *
 *     TRY(checkpoint_reader_open(".../step-500", &options, &reader, e));
 *     const struct checkpoint_info *info = checkpoint_reader_info(reader);
 *     TRY(checkpoint_reader_read(reader, "wte.weight", 0, vocabulary * width, wte, e));
 *
 * Open reads every byte of every file once, or lets the ranks of a gang do that between them. Each JSON file has a
 * checksum of itself, each rank's table the digest of its safetensors file, and the manifest the digest of every
 * tensor, which must equal the digest of the chunks' digests. A flipped bit, a truncated file or a file of another
 * checkpoint is therefore DATA_LOSS, and the message names the file and the error. Tensors are read later, range by
 * range, directly into the caller's memory. During open the reader needs 32 bytes for each 4 KiB that it proves.
 *
 * Files stay open until close, so a folder that is deleted in the meantime can still be read. Not thread-safe. */
#ifndef ENGINE_CHECKPOINT_READER_H
#define ENGINE_CHECKPOINT_READER_H

#include "base/cleanup.h"
#include "base/status.h"
#include "engine/checkpoint/exchange.h"
#include "engine/checkpoint/tensor.h"

#include <stdint.h>

struct roots;

struct checkpoint_info {
    int64_t step, updates, skipped; /* as checkpoint_snapshot has them */
    double loss_scale;              /* fp16's; 0 = none */
    int64_t growth_count;
    int64_t samples;           /* consumed of the data of data_sha256; -1 in early files */
    int64_t not_finite;        /* 0 also in early files */
    const double *spike_norms; /* (n_spike_norms), oldest first; at most CHECKPOINT_NORMS */
    int n_spike_norms;
    int world_size; /* number of ranks that wrote it */
    const char *numerics_id, *data_sha256, *weights_sha256;
    const char *spec_json, *layout_json, *tokenizer_json; /* as given to the writer, in the same order of keys */
    const struct checkpoint_tensor *tensors;              /* sorted by name */
    int n_tensors;
};

/* May be NULL in open. progress is called after every few MiB of verifying or reading. */
struct checkpoint_reader_options {
    const struct roots *roots; /* that the folder must lie below (base/roots.h); NULL: anywhere */
    void (*progress)(void *ctx);
    void *ctx;
    /* With an exchange, the readers of a gang prove the bytes between them: each reads the files r with
     * r % world_size == rank, and the digests are exchanged. All of them must open the same folder at once. */
    int rank, world_size;             /* 0 and 0 or 1: alone */
    checkpoint_exchange_fn *exchange; /* returns within a few seconds, if all call it: each does every second */
    void *exchange_ctx;
};

struct checkpoint_reader;

/* DATA_LOSS: the bytes of a file are not those that were written; all readers of a gang return it. NOT_FOUND,
 * PERMISSION_DENIED: the folder or a file of it cannot be opened or read here (it is missing, its file system is not
 * mounted, the disk fails). The checkpoint itself may be fine: another host, or this host later, may be able to read
 * it. */
MUST_CHECK status_t checkpoint_reader_open(const char *directory, const struct checkpoint_reader_options *options,
                                           struct checkpoint_reader **ret, struct err *e);
struct checkpoint_reader *checkpoint_reader_close(struct checkpoint_reader *r);
CLEANUP_DEFINE(struct checkpoint_reader *, checkpoint_reader_close)

/* Reads the layout from the manifest, and checks the manifest's checksum only. The caller frees it with free().
 * ret_data_sha256 (SHA256_HEX bytes) gets the data's digest, unless it is NULL. */
MUST_CHECK status_t checkpoint_layout(const struct roots *roots, const char *directory, char **ret,
                                      char *ret_data_sha256, struct err *e);

/* The tuning caches of all ranks that wrote it (checkpoint_snapshot.tuning_cache), concatenated without duplicates:
 * that of `rank` first, then the others' in the order of ranks; "" if there is none, as in early checkpoints. So a run
 * that resumes with the same number of ranks uses each rank's own cache, and any other run uses the existing caches.
 * Checks the checksums of the manifest and of the tables only. Errors: as checkpoint_reader_open. The caller frees it
 * with free(). */
MUST_CHECK status_t checkpoint_tuning_caches(const struct roots *roots, const char *directory, int rank, char **ret,
                                             struct err *e);

/* Lives as long as the reader. */
const struct checkpoint_info *checkpoint_reader_info(const struct checkpoint_reader *r);

/* The tensor of this name, or NULL. */
const struct checkpoint_tensor *checkpoint_reader_find(const struct checkpoint_reader *r, const char *name);

/* data (count) = elements [first, first + count) of the tensor. NOT_FOUND: no such tensor; OUT_OF_RANGE: outside it;
 * DATA_LOSS: the file has become shorter since open. */
MUST_CHECK status_t checkpoint_reader_read(struct checkpoint_reader *r, const char *name, int64_t first, int64_t count,
                                           float *data, struct err *e);

#endif
