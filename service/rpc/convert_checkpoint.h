/* Converts rows of checkpoints to messages. Lifetimes are those of convert_job.h. */
#ifndef SERVICE_RPC_CONVERT_CHECKPOINT_H
#define SERVICE_RPC_CONVERT_CHECKPOINT_H

#include "service/rpc/arena.h"
#include "service/store/checkpoint.h"

#include <trainyard/v1/checkpoint.pb-c.h>

Trainyard__V1__Checkpoint *convert_checkpoint(struct arena *a, const struct store_checkpoint *row);

#endif
