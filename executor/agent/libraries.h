/* What workers on GPUs find of NVIDIA's libraries: a worker is asked, in the environment that workers of such jobs get.
 * The agent itself loads none of it. */
#ifndef EXECUTOR_AGENT_LIBRARIES_H
#define EXECUTOR_AGENT_LIBRARIES_H

#include "base/status.h"

#include <stdbool.h>

/* What a worker that is started with --check-cuda ends with, a sentence on its stdout: when no job can run, and when
 * only jobs of one rank can. */
enum { LIBRARIES_EXIT_MISSING = 3, LIBRARIES_EXIT_LONE = 4 };
enum { LIBRARIES_MOST_MS = 20000, LIBRARIES_SENTENCE_BYTES = 800 };

struct libraries {
    bool lone;                              /* ranks could not talk */
    char without[LIBRARIES_SENTENCE_BYTES]; /* what jobs must do without; "" = nothing */
};

/* FAILED_PRECONDITION, with the worker's sentence: no job can run. A worker that says nothing of the kind within
 * most_ms is killed and taken for one that finds all: a job's end then tells what it is. Waits for it: for the agent's
 * main thread, before its loop runs. library_path: as in spawn_options. */
MUST_CHECK status_t libraries_check(const char *worker, const char *library_path, int most_ms, struct libraries *ret,
                                    struct err *e);

#endif
