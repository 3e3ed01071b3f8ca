/* The verifier's book of one rank's gradients: for each buffer and each segment (the part of a slot that lies in one
 * bucket), which lanes and which rounds of micro-batches have been added up in it. Every entry is refused unless it
 * keeps the order that "same bits" promises. Sentences name the parameter; the caller puts rank and instruction before.
 */
#ifndef EXECUTOR_ENGINE_PLAN_GRADIENT_LEDGER_H
#define EXECUTOR_ENGINE_PLAN_GRADIENT_LEDGER_H

#include "executor/engine/plan/plan.h"

struct segment {
    int slot;
    int64_t begin, end; /* elements in gradient space */
    bool normed;
};

/* Lanes [lane, lane + lanes) of rounds [round, round + rounds); lanes 0 = nothing yet. */
struct ledger_cell {
    int lane, lanes, round, rounds;
    int in_flight; /* the channel's entry that reduces it, counted from 1; 0 = none */
};

struct gradient_ledger {
    const struct plan *plan;
    struct segment *segments;
    int n_segments;
    struct ledger_cell *cells; /* [gradient_buffers][n_segments] */
    int *added;                /* [n_slots] owner: slots added to it */
    bool *stepped;             /* [n_slots] */
    bool decided;
};

void gradient_ledger_init(struct gradient_ledger *l, const struct plan *plan);
void gradient_ledger_done(struct gradient_ledger *l);

MUST_CHECK status_t gradient_ledger_backward(struct gradient_ledger *l, const struct instruction *i, struct err *e);
MUST_CHECK status_t gradient_ledger_add(struct gradient_ledger *l, const struct instruction *i, struct err *e);
MUST_CHECK status_t gradient_ledger_add_slot(struct gradient_ledger *l, const struct instruction *i, struct err *e);
/* A reduction starts (entry of the channel): the rank's tree must be whole; nobody may touch it from here on ... */
MUST_CHECK status_t gradient_ledger_reduce(struct gradient_ledger *l, const struct instruction *i, int entry,
                                           struct err *e);
/* ... until the wait for it, after which it holds all lanes. */
void gradient_ledger_waited(struct gradient_ledger *l, int entry);
MUST_CHECK status_t gradient_ledger_norm(struct gradient_ledger *l, const struct instruction *i, struct err *e);
MUST_CHECK status_t gradient_ledger_decide(struct gradient_ledger *l, struct err *e);
MUST_CHECK status_t gradient_ledger_step(struct gradient_ledger *l, const struct instruction *i, struct err *e);
/* At the end of the step: every parameter was stepped, and nothing is in flight. */
MUST_CHECK status_t gradient_ledger_end(const struct gradient_ledger *l, struct err *e);

#endif
