/* Walks a plan's QUEUE_DATA beside the compute queue, one entry after the other: on a thread of its own, or, where the
 * collective's calls only queue work (collective_deferred), within channel_reached. There an entry comes after all that
 * the kernels had been given when compute reached it, and channel_wait has them wait for it.
 *
 *     channel_begin(ch, plan, x);                      // a new step: entries wait for the compute queue
 *     TRY(channel_reached(ch, instructions_done, e));  // compute thread, after each instruction
 *     TRY(channel_wait(ch, entry, e));                 // compute thread: until that entry is done
 *
 * An error of an entry ends the step: the next channel_reached or channel_wait returns it, every later entry is
 * skipped. Nothing is allocated after channel_open. */
#ifndef EXECUTOR_ENGINE_RUN_CHANNEL_H
#define EXECUTOR_ENGINE_RUN_CHANNEL_H

#include "executor/engine/collective/collective.h"
#include "executor/engine/plan/plan.h"

struct execution; /* execute.h */
struct channel;

/* Room for the longest queue of these plans. */
MUST_CHECK status_t channel_open(struct collective *collective, const struct plan *const *plans, int n,
                                 struct channel **ret, struct err *e);
struct channel *channel_close(struct channel *ch); /* aborts the collective when an entry is still under way */
CLEANUP_DEFINE(struct channel *, channel_close)

void channel_begin(struct channel *ch, const struct plan *plan, const struct execution *x);
MUST_CHECK status_t channel_reached(struct channel *ch, int done, struct err *e);
MUST_CHECK status_t channel_wait(struct channel *ch, int entry, struct err *e);
/* Every rank, when it has waited for a plan's calls: collective_confirm. */
MUST_CHECK status_t channel_confirm(struct channel *ch, struct err *e);
int64_t channel_wait_ns(const struct channel *ch); /* time spent in channel_wait so far; compute thread */

#endif
