/* From every rank's chunk digests to every tensor's digest and the model's. Private to this folder. */
#ifndef EXECUTOR_ENGINE_CHECKPOINT_GATHER_H
#define EXECUTOR_ENGINE_CHECKPOINT_GATHER_H

#include "executor/engine/checkpoint/digest.h"
#include "executor/engine/checkpoint/writer.h"

/* Chunks of all tensors together, in the order given, that one exchange covers: 8 MiB of digests, of 1 GiB of state. */
#define GATHER_BATCH ((int64_t)1 << 18)

/* Digests this rank's pieces, exchanges the digests batch by batch (`batch` chunks of the whole state at a time, the
 * same on every rank: GATHER_BATCH, or less in a test), proves that the ranks' pieces cover every tensor exactly once,
 * and sets digests (n_tensors) and the weights' digest, hex. All ranks call it at once. Memory: one batch.
 * INTERNAL: the pieces do not fit together, which is a bug on some rank; statuses of the exchange pass through. */
MUST_CHECK status_t gather_digests(const struct checkpoint_writer_config *config,
                                   const struct checkpoint_snapshot *snapshot, int64_t batch, digest_t *digests,
                                   char weights_sha256[SHA256_HEX], struct err *e);

#endif
