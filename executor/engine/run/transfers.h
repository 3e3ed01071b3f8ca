/* The two queues of a pipeline: SEND and RECV of boundary tensors, of a shared parameter's gradient and of its weight.
 * They need no thread: an entry is posted as soon as the compute queue has come far enough, and completes by itself.
 *
 *     transfers_begin(t, plan, x);                      // a new step
 *     TRY(transfers_reached(t, instructions_done, e));  // compute thread, after each instruction
 *     TRY(transfers_wait(t, queue, entry, e));          // compute thread: until that entry is done
 *
 * Where the collective's calls only queue work (collective_deferred) transfers_wait has the kernels wait for it. */
#ifndef EXECUTOR_ENGINE_RUN_TRANSFERS_H
#define EXECUTOR_ENGINE_RUN_TRANSFERS_H

#include "executor/engine/collective/collective.h"
#include "executor/engine/plan/plan.h"

struct execution; /* execute.h */
struct transfers;

/* Room for the longest queues of these plans. */
MUST_CHECK status_t transfers_open(struct collective *collective, const struct plan *const *plans, int n,
                                   struct transfers **ret, struct err *e);
struct transfers *transfers_close(struct transfers *t);
CLEANUP_DEFINE(struct transfers *, transfers_close)

void transfers_begin(struct transfers *t, const struct plan *plan, const struct execution *x);
MUST_CHECK status_t transfers_reached(struct transfers *t, int done, struct err *e);
MUST_CHECK status_t transfers_wait(struct transfers *t, enum plan_queue queue, int entry, struct err *e);
int64_t transfers_wait_ns(const struct transfers *t); /* time spent in transfers_wait so far */

#endif
