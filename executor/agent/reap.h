/* How a worker ended, in one sentence; and the end of workers that an earlier agent left behind.
 *
 * A worker's pidfd becomes readable when it dies; reap_process then takes its status. */
#ifndef EXECUTOR_AGENT_REAP_H
#define EXECUTOR_AGENT_REAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <trainyard/v1/worker.pb-c.h>

struct reaped {
    int exit_code; /* -1 when a signal ended it */
    int signal;    /* 0 when it exited */
};

/* The status of a child that has ended, without waiting; UNAVAILABLE while it runs. */
MUST_CHECK status_t reap_process(pid_t pid, struct reaped *ret, struct err *e);

/* An exit code 20 + cause says the cause when the worker's own last word is missing; else INTERNAL. */
Trainyard__V1__WorkerEnd__Cause reap_cause(const struct reaped *r);

/* What a rank's name or "the worker" is put before: "killed by signal 11 (Segmentation fault)", "exited with status 3
 * and no last word", "finished". killed_because: why the agent itself killed it, which is then the sentence; NULL when
 * it did not. */
void reap_sentence(const struct reaped *r, const char *killed_because, char *ret, size_t n);

/* Kills the process that had this pid and start time, and waits until it is gone. Not our child, so only its handle
 * tells its end. OK when it is gone already or the pid belongs to another process by now. DEADLINE_EXCEEDED when it
 * is still there after timeout_ms. */
MUST_CHECK status_t reap_stranger(pid_t pid, int64_t start_time, int timeout_ms, struct err *e);

#endif
