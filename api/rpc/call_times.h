/* How often each method of a server was called, how the calls ended, and how long they took. Read at any time, from any
 * thread; the numbers of one method may be of slightly different moments. */
#ifndef API_RPC_CALL_TIMES_H
#define API_RPC_CALL_TIMES_H

#include "base/histogram.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RPC_STATUSES = ST_UNAUTHENTICATED + 1 };

struct rpc_call_times {
    _Atomic int64_t ended[RPC_STATUSES]; /* calls by their status */
    bool unary;
    struct histogram times; /* of unary calls */
};

/* A new one for a method. */
struct rpc_call_times *call_times_new(bool unary);
void call_times_add(struct rpc_call_times *t, status_t status, int64_t ns);

struct rpc_server;
/* Calls each() for every method, ordered by service and method. service: "trainyard.v1.JobService". */
typedef void rpc_call_times_fn(void *ctx, const char *service, const char *method, const struct rpc_call_times *);
void rpc_server_call_times(const struct rpc_server *, rpc_call_times_fn *each, void *ctx);

#endif
