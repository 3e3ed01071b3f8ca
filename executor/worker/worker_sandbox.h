/* The sandbox of a worker, which enters it when it knows its order and before it has a second thread. */
#ifndef EXECUTOR_WORKER_WORKER_SANDBOX_H
#define EXECUTOR_WORKER_WORKER_SANDBOX_H

#include "base/status.h"

#include <trainyard/v1/worker.pb-c.h>

/* Enters the sandbox that the command orders, if it orders one. The folder of a rank's checkpoints must exist
 * (rank_folders_make). Errors: those of sandbox_open, or INTERNAL; then the process must end. */
MUST_CHECK status_t worker_sandbox_enter(const Trainyard__V1__WorkerCommand *first, struct err *e);

#endif
