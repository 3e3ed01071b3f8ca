/* Measures with the device's clock how long a step's kernels waited for other ranks. It is needed if the collective's
 * calls only queue work (collective_deferred): then the host does not wait and cannot measure it.
 *
 *     wait_clock_begin(w);              // the calls of a plan begin
 *     TRY(wait_clock_enter(w, e));      // before the calls of each WAIT
 *     TRY(wait_clock_leave(w, e));      // after them
 *     TRY(wait_clock_take(w, &ns, e));  // of the oldest plan not taken; the host has waited for its end
 *
 * A timer is recorded before and after each WAIT; nothing but the wait is between them in the kernels' queue. At most
 * CONTROL_STEPS plans are in flight. One thread; nothing is allocated after wait_clock_open. */
#ifndef ENGINE_RUN_WAIT_CLOCK_H
#define ENGINE_RUN_WAIT_CLOCK_H

#include "engine/plan/plan.h"
#include "kernels/kernels.h"

struct wait_clock;

/* With capacity for the WAITs of each of these plans. The kernels are borrowed until close. */
MUST_CHECK status_t wait_clock_open(const struct kernels *k, const struct plan *const *plans, int n,
                                    struct wait_clock **ret, struct err *e);
struct wait_clock *wait_clock_close(struct wait_clock *w);
CLEANUP_DEFINE(struct wait_clock *, wait_clock_close)

void wait_clock_begin(struct wait_clock *w);
MUST_CHECK status_t wait_clock_enter(struct wait_clock *w, struct err *e);
MUST_CHECK status_t wait_clock_leave(struct wait_clock *w, struct err *e);
MUST_CHECK status_t wait_clock_take(struct wait_clock *w, int64_t *ret_ns, struct err *e);

#endif
