/* The two JSON files of a checkpoint, as structs, read and written.
 *
 * manifest.json (of the whole checkpoint):
 *   format "trainyard-checkpoint-2", step, updates, skipped, samples, not_finite, loss_scale, growth_count,
 *   spike_norms, world_size, numerics_id, data_sha256, weights_sha256, layout, tokenizer, spec,
 *   tensors: [{name, dtype "F32", shape, sha256}], self_sha256
 *   Early files lack skipped, not_finite (0 then) or samples (-1 then, which is not written).
 * rank-<r>.json (of one safetensors file):
 *   format "trainyard-rank-2", step, rank, world_size, file, bytes, sha256, record (absent if ""),
 *   pieces: [{name, dtype "F32", shape, first, count}], self_sha256
 *
 * shape is the whole tensor's; digests are hex, as digest.h defines them; record is the
 * tuning cache, opaque text here (checkpoint_tuning_caches). The parsers are called after checksummed_check and still
 * validate every field. Private to this folder and its fuzz target. */
#ifndef ENGINE_CHECKPOINT_MANIFEST_H
#define ENGINE_CHECKPOINT_MANIFEST_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "engine/checkpoint/digest.h"

/* Texts are borrowed by manifest_write and owned after manifest_parse. */
struct manifest {
    int64_t step, updates, skipped, samples, not_finite;
    double loss_scale; /* fp16's; 0 = none */
    int64_t growth_count;
    const double *spike_norms; /* (n_spike_norms), oldest first */
    int n_spike_norms;
    int world_size;
    const char *numerics_id, *data_sha256, *weights_sha256;
    const char *spec_json, *layout_json, *tokenizer_json;
    const struct checkpoint_tensor *tensors; /* after parse: sorted by name, no name twice */
    const digest_t *digests;                 /* (n_tensors) */
    int n_tensors;
};

MUST_CHECK status_t manifest_write(const struct manifest *m, struct bytes *ret, struct err *e);
MUST_CHECK status_t manifest_parse(const char *text, size_t n, struct manifest **ret, struct err *e);
struct manifest *manifest_free(struct manifest *m); /* made by manifest_parse */
CLEANUP_DEFINE(struct manifest *, manifest_free)

struct rank_segment {
    struct checkpoint_tensor tensor;
    int64_t first, count;
};

struct rank_table {
    int64_t step;
    int rank, world_size;
    int64_t bytes;      /* of the safetensors file */
    const char *sha256; /* of that file, hex */
    const struct rank_segment *segments;
    int n_segments;
    const char *tuning_cache; /* less than CHECKPOINT_TUNING_CACHE_BYTES; "" = none */
};

MUST_CHECK status_t rank_table_write(const struct rank_table *t, struct bytes *ret, struct err *e);
MUST_CHECK status_t rank_table_parse(const char *text, size_t n, struct rank_table **ret, struct err *e);
struct rank_table *rank_table_free(struct rank_table *t); /* made by rank_table_parse */
CLEANUP_DEFINE(struct rank_table *, rank_table_free)

/* File names in a step folder. */
enum { CHECKPOINT_FILE_BYTES = 32 };
#define CHECKPOINT_MANIFEST "manifest.json"
void checkpoint_data_file(int rank, char ret[CHECKPOINT_FILE_BYTES]);  /* rank-<r>.safetensors */
void checkpoint_table_file(int rank, char ret[CHECKPOINT_FILE_BYTES]); /* rank-<r>.json */

/* Size limit of both files. */
#define CHECKPOINT_JSON_BYTES ((size_t)128 << 20)

#endif
