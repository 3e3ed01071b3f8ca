/* What the service benches share: a job spec in C, and the clock that they read. */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include "api/rpc/client.h"

#include <trainyard/v1/job.pb-c.h>

/* A tiny GPT on `text` (a path) over `ranks` ranks for `steps` steps. Points into static storage: one at a time. */
Trainyard__V1__JobSpec *bench_spec(const char *text, int ranks, int64_t steps);

/* Prints the sentence and exits with 1: a bench has nothing to go on with. */
__attribute__((noreturn)) void bench_fail(const char *what, const char *why);

/* A random UUID as text. */
void bench_request_id(char ret[37]);

/* A simulated executor: its Attach stream, opened with a hello of `slots` CPU slots. It obeys nothing. rpc_cancel and
 * rpc_unref it. The events get what the controller sends. */
struct rpc_call *bench_executor(struct rpc_channel *channel, int number, int slots, const struct rpc_events *events);

#endif
