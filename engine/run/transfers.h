/* The two queues of a pipeline, for activations and for gradients: SEND and RECV of tensors between stages, of a shared
 * parameter's gradient and of its weight. They need no thread: an entry is posted when the compute queue has reached
 * it, and completes by itself.
 *
 *     transfers_begin(t, plan, x);                             // a new step
 *     TRY(transfers_start_reached(t, instructions_done, e));   // compute thread, after each instruction
 *     TRY(transfers_wait(t, queue, entry, e));                 // compute thread: until this entry is done
 *
 * If the collective's calls only queue work (collective_deferred), transfers_wait makes the kernels wait for it, and
 * the host does not wait. */
#ifndef ENGINE_RUN_TRANSFERS_H
#define ENGINE_RUN_TRANSFERS_H

#include "engine/collective/collective.h"
#include "engine/plan/plan.h"

struct execution; /* execution.h */
struct transfers;

/* With capacity for the longest queues of these plans. */
MUST_CHECK status_t transfers_open(struct collective *collective, const struct plan *const *plans, int n,
                                   struct transfers **ret, struct err *e);
struct transfers *transfers_close(struct transfers *t);
CLEANUP_DEFINE(struct transfers *, transfers_close)

void transfers_begin(struct transfers *t, const struct plan *plan, const struct execution *x);
MUST_CHECK status_t transfers_start_reached(struct transfers *t, int done, struct err *e);
MUST_CHECK status_t transfers_wait(struct transfers *t, enum plan_queue queue, int entry, struct err *e);
int64_t transfers_wait_ns(const struct transfers *t); /* total time spent in transfers_wait */

#endif
