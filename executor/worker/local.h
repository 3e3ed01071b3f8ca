/* Runs the ranks of one spec as processes of this machine, without a service, for trainyard-train.
 *
 *     TRY(local_run(ranks, body, ctx, &status, e));      // calls body once in each rank, with its collective
 *
 * One rank runs in the calling process. Several are forked, so the caller must not have threads yet; they connect over
 * Gloo on loopback, the parent carries their rendezvous, and they die with the parent. The parent passes SIGTERM on. It
 * ignores SIGINT, which the terminal sends to the ranks too. */
#ifndef EXECUTOR_WORKER_LOCAL_H
#define EXECUTOR_WORKER_LOCAL_H

#include "base/status.h"
#include "engine/collective/collective.h"

enum { LOCAL_RANKS_MAX = 64 }; /* of one machine */

/* What a rank does; its return value is its exit code. */
typedef int local_body(void *ctx, int rank, struct collective *collective);

/* *ret_code: 0 when every rank returned 0, else the first code that a rank returned before the others, or 128 + the
 * signal that ended it. */
MUST_CHECK status_t local_run(int ranks, local_body *body, void *ctx, int *ret_code, struct err *e);

#endif
