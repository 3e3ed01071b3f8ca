/* From every rank's chunk digests to every tensor's digest and the model's. Private to this folder. */
#ifndef EXECUTOR_ENGINE_CHECKPOINT_GATHER_H
#define EXECUTOR_ENGINE_CHECKPOINT_GATHER_H

#include "executor/engine/checkpoint/digest.h"
#include "executor/engine/checkpoint/writer.h"

/* chunks[i] = the digests of pieces[i] of this rank's snapshot. Exchanges them, proves that the ranks' pieces cover
 * every tensor exactly once, and sets digests (n_tensors) and the weights' digest, hex. All ranks call it at once.
 * INTERNAL: the pieces do not fit together, which is a bug on some rank; statuses of the exchange pass through. */
MUST_CHECK status_t gather_digests(const struct checkpoint_writer_config *config,
                                   const struct checkpoint_snapshot *snapshot, digest_t *const *chunks,
                                   digest_t *digests, char weights_sha256[SHA256_HEX], struct err *e);

#endif
