/* Converts rows of executors to messages. Lifetimes are those of convert_job.h. */
#ifndef SERVICE_RPC_CONVERT_EXECUTOR_H
#define SERVICE_RPC_CONVERT_EXECUTOR_H

#include "service/rpc/arena.h"
#include "service/store/executor.h"

#include <trainyard/v1/executor.pb-c.h>

Trainyard__V1__Executor *convert_executor(struct arena *a, const struct store_executor *row);

#endif
