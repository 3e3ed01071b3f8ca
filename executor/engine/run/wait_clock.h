/* How long a step's kernels waited for other ranks, by the device's clock: where the collective's calls only queue work
 * (collective_deferred) the host waits for none of it, and so cannot tell.
 *
 *     wait_clock_begin(w);              // a plan's calls begin
 *     TRY(wait_clock_enter(w, e));      // before what has the kernels wait, of each WAIT
 *     TRY(wait_clock_leave(w, e));      // after it
 *     TRY(wait_clock_take(w, &ns, e));  // of the oldest not taken, whose end the host has waited for
 *
 * A timer before and one after each WAIT: what lies between them in the kernels' queue is the wait alone. At most
 * CONTROL_STEPS plans are under way. One thread; nothing is allocated after wait_clock_open. */
#ifndef EXECUTOR_ENGINE_RUN_WAIT_CLOCK_H
#define EXECUTOR_ENGINE_RUN_WAIT_CLOCK_H

#include "executor/engine/plan/plan.h"
#include "kernels/kernels.h"

struct wait_clock;

/* For as many WAITs as the longest of these plans has. The kernels are borrowed until close. */
MUST_CHECK status_t wait_clock_open(const struct kernels *k, const struct plan *const *plans, int n,
                                    struct wait_clock **ret, struct err *e);
struct wait_clock *wait_clock_close(struct wait_clock *w);
CLEANUP_DEFINE(struct wait_clock *, wait_clock_close)

void wait_clock_begin(struct wait_clock *w);
MUST_CHECK status_t wait_clock_enter(struct wait_clock *w, struct err *e);
MUST_CHECK status_t wait_clock_leave(struct wait_clock *w, struct err *e);
MUST_CHECK status_t wait_clock_take(struct wait_clock *w, int64_t *ret_ns, struct err *e);

#endif
