/* A worker's exit code repeats the cause of its end, for when its pipe is gone too. */
#ifndef EXECUTOR_WORKER_EXIT_CODE_H
#define EXECUTOR_WORKER_EXIT_CODE_H

#include <trainyard/v1/worker.pb-c.h>

/* 0 for FINISHED, else 20 + cause. */
static inline int worker_exit_code(Trainyard__V1__WorkerEnd__Cause cause) {
    return cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED ? 0 : 20 + (int)cause;
}

#endif
