/* Runs the entries of a plan's QUEUE_DATA (reductions, gathers, exchanges of the step results and the norms), one
 * after the other, beside the compute queue.
 *
 *     data_queue_begin(q, plan, x);                            // a new step
 *     TRY(data_queue_start_reached(q, instructions_done, e));  // compute thread, after each instruction
 *     TRY(data_queue_wait(q, entry, e));                       // compute thread: until this entry is done
 *
 * There are two modes. With a collective that blocks (Gloo), a thread of its own runs the entries, and data_queue_wait
 * waits for that thread. With a collective whose calls only queue work (collective_deferred, NCCL), the compute thread
 * queues an entry in data_queue_start_reached, behind all kernel calls so far, and data_queue_wait makes later kernel
 * calls wait for the entry; the host does not wait.
 *
 * An error of an entry ends the step: the next data_queue_start_reached or data_queue_wait returns it, and later
 * entries are skipped. Nothing is allocated after data_queue_open. */
#ifndef ENGINE_RUN_DATA_QUEUE_H
#define ENGINE_RUN_DATA_QUEUE_H

#include "engine/collective/collective.h"
#include "engine/plan/plan.h"

struct execution; /* execution.h */
struct data_queue;

/* With capacity for the longest data queue of these plans. */
MUST_CHECK status_t data_queue_open(struct collective *collective, const struct plan *const *plans, int n,
                                    struct data_queue **ret, struct err *e);
struct data_queue *data_queue_close(struct data_queue *q); /* aborts the collective if an entry is not finished */
CLEANUP_DEFINE(struct data_queue *, data_queue_close)

void data_queue_begin(struct data_queue *q, const struct plan *plan, const struct execution *x);
/* Starts the entries that wait for the first `done` instructions of the compute queue. */
MUST_CHECK status_t data_queue_start_reached(struct data_queue *q, int done, struct err *e);
MUST_CHECK status_t data_queue_wait(struct data_queue *q, int entry, struct err *e);
/* Called by every rank after it has waited for a plan's calls: collective_confirm. */
MUST_CHECK status_t data_queue_confirm(struct data_queue *q, struct err *e);
int64_t data_queue_wait_ns(const struct data_queue *q); /* total time spent in data_queue_wait; compute thread */

#endif
