/* Executes a plan: issues the calls of every instruction of the compute queue in order, and starts the entries of the
 * other queues when the compute queue has reached them.
 *
 * Every decision is the plan's. None is made on the host: what changes from step to step, and the result of a step, are
 * in the device's memory (step_control.h).
 *
 *     execution.h       state and addresses
 *     instructions.h    one instruction of the compute queue
 *     data_queue.h      QUEUE_DATA: collectives
 *     transfers.h       SEND and RECV between pipeline stages
 *     throttle.h        how far the host runs ahead of the device
 *     instrument.h      ranges and times for tools and profiles
 *
 * One thread, the compute thread. Nothing is allocated after execution_open. */
#ifndef ENGINE_RUN_EXECUTE_H
#define ENGINE_RUN_EXECUTE_H

#include "engine/run/execution.h"

/* Issues all calls of a plan, which was among those of execution_open. */
MUST_CHECK status_t execute(struct execution *x, const struct plan *plan, struct err *e);

/* Waits for the oldest plan that is not taken, and then until every rank has confirmed the end of it. Before that,
 * nothing of a step counts: it must not be reported, evaluated or written. *ret is valid until the next one. */
MUST_CHECK status_t execute_take(struct execution *x, const struct step_control **ret, struct err *e);

/* execute and execute_take, when nothing else is in flight. */
MUST_CHECK status_t execute_now(struct execution *x, const struct plan *plan, const struct step_control **ret,
                                struct err *e);

/* Runs every op of a plan once for the first micro-batch, on the present bytes of the arena, and waits for each.
 * Libraries load kernels at their first call; after the warm-up only kernels that later micro-batches alone call
 * (products that add) are left to load. Leaves meaningless activations and gradients, which a step overwrites. */
MUST_CHECK status_t execute_warm_up(struct execution *x, const struct plan *plan, struct err *e);

/* Whether the step's calls are captured once and launched from then on. */
bool execute_can_launch(const struct execution *x, const struct plan *plan);

/* All micro-batches' losses of a training step, added in their order: the same bits in every layout. *ret_bad: the
 * first micro-batch whose loss is not finite, or -1. */
double execute_loss_sum(const struct step_control *c, const struct plan *plan, int *ret_bad);

#endif
