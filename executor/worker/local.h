/* The ranks of one spec as processes of this machine, without a service: what trainyard-train is for.
 *
 *     TRY(local_run(ranks, body, ctx, &status, e));      // body runs once a rank, with its collective
 *
 * One rank runs in the calling process. Several are forked (so the caller has no threads yet), meet over Gloo on
 * loopback with the parent as their rendezvous, and die with it. The parent passes SIGTERM on; SIGINT it ignores: the
 * terminal sends it to the ranks as well. */
#ifndef EXECUTOR_WORKER_LOCAL_H
#define EXECUTOR_WORKER_LOCAL_H

#include "base/status.h"
#include "executor/engine/collective/collective.h"

enum { LOCAL_RANKS_MOST = 64 }; /* of one machine */

/* What a rank does; its return value is its exit code. */
typedef int local_body(void *ctx, int rank, struct collective *collective);

/* *ret_code: 0 when every rank returned 0, else the first code that a rank returned before the others, or 128 + the
 * signal that ended it. */
MUST_CHECK status_t local_run(int ranks, local_body *body, void *ctx, int *ret_code, struct err *e);

#endif
