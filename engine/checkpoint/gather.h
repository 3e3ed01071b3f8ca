/* Computes every tensor's digest and the model's from the chunk digests of all ranks. Private to this folder. */
#ifndef ENGINE_CHECKPOINT_GATHER_H
#define ENGINE_CHECKPOINT_GATHER_H

#include "engine/checkpoint/digest.h"
#include "engine/checkpoint/writer.h"

/* Chunks that one exchange covers: 8 MiB of digests, for 1 GiB of state. */
#define GATHER_BATCH ((int64_t)1 << 18)

/* For writers, and for readers that prove the files of a checkpoint between them. Digests this rank's segments (chunks:
 * the digests of the segments' chunks if they are known, else NULL), exchanges the digests batch by batch (`batch`
 * chunks of the whole state at a time, the same on every rank: GATHER_BATCH, or less in a test), proves that the ranks'
 * segments cover every tensor exactly once, and sets digests (n_tensors) and the weights' digest, hex. All ranks must
 * call it together. Memory: one batch. INTERNAL: the segments have a gap or an overlap, which is a bug on some rank;
 * errors of the exchange are returned. */
MUST_CHECK status_t gather_digests(const struct checkpoint_writer_config *config,
                                   const struct checkpoint_snapshot *snapshot, const digest_t *const *chunks,
                                   int64_t batch, digest_t *digests, char weights_sha256[SHA256_HEX], struct err *e);

#endif
