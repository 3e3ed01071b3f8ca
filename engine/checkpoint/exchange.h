/* How the ranks that write or read a checkpoint exchange bytes. */
#ifndef ENGINE_CHECKPOINT_EXCHANGE_H
#define ENGINE_CHECKPOINT_EXCHANGE_H

#include "base/bytes.h"

/* Gathers the blobs of all ranks on every rank: collective_all_gather_blobs on a stream that nothing else uses
 * meanwhile. */
typedef status_t checkpoint_exchange_fn(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e);

#endif
