/* Converts rows of checkpoints to messages. Lifetimes are those of convert_job.h. */
#ifndef SERVICE_RPC_CONVERT_CHECKPOINT_H
#define SERVICE_RPC_CONVERT_CHECKPOINT_H

#include "service/rpc/arena.h"
#include "service/store/checkpoint.h"

#include <trainyard/v1/checkpoint.pb-c.h>

Trainyard__V1__Checkpoint *convert_checkpoint(struct arena *a, const struct store_checkpoint *row);

/* FAILED_PRECONDITION: the checkpoint is in a store, and hosts read only folders for this request. */
MUST_CHECK status_t checkpoint_in_folder(const struct store_checkpoint *row, struct err *e);

#endif
