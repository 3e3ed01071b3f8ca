/* The same for many things, on several threads with a connection each. */
#ifndef EXECUTOR_DATA_PARALLEL_H
#define EXECUTOR_DATA_PARALLEL_H

#include "executor/data/http.h"

enum { PARALLEL_THREADS = 8 };

/* Calls `each` for 0 to n - 1, in any order, on at most PARALLEL_THREADS threads. Returns the first failure; after it
 * no call begins. */
MUST_CHECK status_t parallel_each(int n, status_t (*each)(void *ctx, int i, struct http *h, struct err *e), void *ctx,
                                  struct err *e);

/* Starts `threads` threads (at least one of them begins), and waits for their ends. */
MUST_CHECK status_t parallel_run(int threads, void *(*run)(void *ctx), void *ctx, struct err *e);

#endif
