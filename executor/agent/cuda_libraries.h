/* Checks whether workers on GPUs find NVIDIA's libraries. A worker makes the check in the environment that workers of
 * such jobs get. The agent itself does not load the libraries. */
#ifndef EXECUTOR_AGENT_CUDA_LIBRARIES_H
#define EXECUTOR_AGENT_CUDA_LIBRARIES_H

#include "base/status.h"

#include <stdbool.h>

/* The exit codes of a worker with --check-cuda, which also prints a sentence: no job can run; only jobs of one rank
 * can.
 */
enum { CUDA_LIBRARIES_EXIT_MISSING = 3, CUDA_LIBRARIES_EXIT_SINGLE_RANK = 4 };
enum { CUDA_LIBRARIES_MAX_MS = 20000, CUDA_LIBRARIES_SENTENCE_BYTES = 800 };

struct cuda_libraries {
    bool single_rank;                            /* ranks cannot communicate: only jobs of one rank can run */
    char without[CUDA_LIBRARIES_SENTENCE_BYTES]; /* the sentence: what is missing; "" = nothing */
};

/* FAILED_PRECONDITION, with the worker's sentence: no job can run. A worker that has not ended after max_ms is killed.
 * Such a worker, or a worker that fails in another way, counts as if it had found all libraries: the end of a job will
 * show the reason. The call blocks: make it from the agent's main thread before the loop runs. library_path: as in
 * spawn_options. */
MUST_CHECK status_t cuda_libraries_check(const char *worker, const char *user, const char *library_path, int max_ms,
                                         struct cuda_libraries *ret, struct err *e);

#endif
