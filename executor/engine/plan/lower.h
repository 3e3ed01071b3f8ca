/* Lowering: phases become the four queues. For lower*.c only. */
#ifndef EXECUTOR_ENGINE_PLAN_LOWER_H
#define EXECUTOR_ENGINE_PLAN_LOWER_H

#include "executor/engine/plan/build.h"

struct gradient_lowering; /* lower_gradients.c */
struct unit_lowering;     /* lower_units.c */

/* Boundary tensors of a chunk, by the way they go. */
enum way { WAY_FORWARD, WAY_BACKWARD, WAYS };

struct lowering {
    struct building *b;
    struct plan *p;
    int n;                            /* micro-batches of this rank */
    int *received[WAYS], *sent[WAYS]; /* [virtual_stages][n] entry; -1: none, or waited for */
    int data_waited;                  /* entries of the data queue that a WAIT has passed */
    int exchange;                     /* its entry; -1 */
    int at;                           /* coordinate of the instruction in work: building.alive */
    struct gradient_lowering *gradients;
    struct unit_lowering *units; /* NULL unless ZeRO-3 */
};

/* WAIT; on the data queue nothing when an older WAIT passed the entry already. */
MUST_CHECK status_t lower_wait(struct lowering *l, enum plan_queue queue, int entry, struct err *e);
/* A new entry of another queue, due now: the last one there then. */
MUST_CHECK status_t lower_post(struct lowering *l, enum plan_queue queue, struct instruction i, struct err *e);
/* GATHER of a bucket. */
MUST_CHECK status_t lower_gather(struct lowering *l, int bucket, struct err *e);
void lower_alive(struct lowering *l, int object);

/* --- lower_gradients.c: lanes, rounds, reductions, norms, the optimizer ---*/

/* Sets l->gradients, which is for gradients_close after a failure too. */
MUST_CHECK status_t gradients_open(struct lowering *l, struct err *e);
struct gradient_lowering *gradients_close(struct gradient_lowering *g);
/* Around a BACKWARD_*: fills in its buffer and `first`; what completes a bucket is added and reduced. */
MUST_CHECK status_t gradients_before(struct lowering *l, struct instruction *i, struct err *e);
MUST_CHECK status_t gradients_after(struct lowering *l, const struct instruction *i, struct err *e);
void gradients_alive(struct lowering *l);
/* After the last phase. */
MUST_CHECK status_t gradients_finish(struct lowering *l, struct err *e);
MUST_CHECK status_t gradients_step(struct lowering *l, struct err *e);

/* --- lower_units.c: ZeRO-3's parameters come and go ---*/

/* Sets l->units, as gradients_open. */
MUST_CHECK status_t units_open(struct lowering *l, struct err *e);
struct unit_lowering *units_close(struct unit_lowering *u);
/* Before an op of this block, in the order of the programs. */
MUST_CHECK status_t units_before(struct lowering *l, int block, struct err *e);
void units_alive(struct lowering *l);
MUST_CHECK status_t units_finish(struct lowering *l, struct err *e);

#endif
