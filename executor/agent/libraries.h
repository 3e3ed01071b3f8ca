/* Whether workers find what training on GPUs needs: a worker is asked, in the environment that workers of such jobs
 * get. The agent itself loads none of it. */
#ifndef EXECUTOR_AGENT_LIBRARIES_H
#define EXECUTOR_AGENT_LIBRARIES_H

#include "base/status.h"

/* What a worker that is started with --check-cuda ends with when something is missing, and says on its stdout what. */
enum { LIBRARIES_EXIT_MISSING = 3, LIBRARIES_MOST_MS = 20000 };

/* FAILED_PRECONDITION with the worker's sentence. A worker that says nothing of the kind within LIBRARIES_MOST_MS is
 * taken for one that finds all: a job's end then tells what it is. Waits for it: for the agent's main thread, before
 * its loop runs. library_path: as in spawn_options. */
MUST_CHECK status_t libraries_check(const char *worker, const char *library_path, struct err *e);

#endif
