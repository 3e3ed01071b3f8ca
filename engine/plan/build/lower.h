/* What the lower*.c files share: the state of lowering, and how they emit instructions. */
#ifndef ENGINE_PLAN_BUILD_LOWER_H
#define ENGINE_PLAN_BUILD_LOWER_H

#include "engine/plan/build/building.h"

struct gradient_lowering; /* lower_gradients.c */
struct gather_lowering;   /* lower_zero3.c */

struct lowering {
    struct building *b;
    struct plan *p;
    int n;                            /* micro-batches of this rank */
    int width;                        /* boundary tensors of a transfer, at most */
    int *received[WAYS], *sent[WAYS]; /* [virtual_stages][n][width] entry; -1: none, or waited for */
    int data_waited;                  /* entries of the data queue that a WAIT has passed */
    int exchange;                     /* the entry of EXCHANGE; -1: none */
    int at;                           /* the current instruction as a bit number of building.alive */
    struct gradient_lowering *gradients;
    struct gather_lowering *gathers; /* NULL unless ZeRO-3 */
};

/* Emits a WAIT. On the data queue it emits nothing if an older WAIT includes the entry. */
MUST_CHECK status_t lower_wait(struct lowering *l, enum plan_queue queue, int entry, struct err *e);
/* Appends an entry to another queue. The entry may start now. */
MUST_CHECK status_t lower_post(struct lowering *l, enum plan_queue queue, struct instruction i, struct err *e);
/* Posts the GATHER of a bucket. */
MUST_CHECK status_t lower_gather(struct lowering *l, int bucket, struct err *e);
/* The object (building.alive) is alive at the current instruction. */
void lower_alive(struct lowering *l, int object);

/* --- lower_gradients.c: lanes, rounds, reductions, norms, the optimizer ---*/

/* Sets l->gradients. gradients_close, after a failure too. */
MUST_CHECK status_t gradients_open(struct lowering *l, struct err *e);
struct gradient_lowering *gradients_close(struct gradient_lowering *g);
/* Before and after a BACKWARD_*: sets its buffer and `first`; adds and reduces the buckets that it completes. */
MUST_CHECK status_t gradients_before(struct lowering *l, struct instruction *i, struct err *e);
MUST_CHECK status_t gradients_after(struct lowering *l, const struct instruction *i, struct err *e);
void gradients_alive(struct lowering *l);
/* After the last phase. */
MUST_CHECK status_t gradients_finish(struct lowering *l, struct err *e);
MUST_CHECK status_t gradients_step(struct lowering *l, struct err *e);
/* All of a plan of averages. */
MUST_CHECK status_t gradients_switch_averages(struct lowering *l, struct err *e);

/* --- lower_zero3.c: gathers and drops weights, with ZeRO 3 ---*/

/* Sets l->gathers, as gradients_open. */
MUST_CHECK status_t gathers_open(struct lowering *l, struct err *e);
struct gather_lowering *gathers_close(struct gather_lowering *u);
/* Before an instruction of this block, in the order of the programs. */
MUST_CHECK status_t gathers_before(struct lowering *l, int block, struct err *e);
void gathers_alive(struct lowering *l);
MUST_CHECK status_t gathers_finish(struct lowering *l, struct err *e);

#endif
