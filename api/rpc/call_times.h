/* How often each method of a server was called, how the calls ended, and how long they took. Read at any time, from any
 * thread; the numbers of one method may be of slightly different moments. */
#ifndef API_RPC_CALL_TIMES_H
#define API_RPC_CALL_TIMES_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RPC_STATUSES = ST_UNAUTHENTICATED + 1, RPC_TIME_BUCKETS = 10 };

struct rpc_call_times {
    _Atomic int64_t ended[RPC_STATUSES]; /* calls by their status */
    /* Unary calls by their time: number i took at most rpc_time_bounds[i] seconds, and more than bound i - 1. Calls
     * above the last bound are in no bucket. */
    _Atomic int64_t buckets[RPC_TIME_BUCKETS];
    _Atomic int64_t unary, unary_ns; /* number and total time of unary calls */
};
extern const double rpc_time_bounds[RPC_TIME_BUCKETS];

void call_times_add(struct rpc_call_times *t, status_t status, bool unary, int64_t ns);

struct rpc_server;
/* Calls each() for every method, ordered by service and method. service: "trainyard.v1.JobService". */
typedef void rpc_call_times_fn(void *ctx, const char *service, const char *method, const struct rpc_call_times *);
void rpc_server_call_times(const struct rpc_server *, rpc_call_times_fn *each, void *ctx);

#endif
