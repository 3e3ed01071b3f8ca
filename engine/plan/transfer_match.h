/* Which ranks work together: the SEND that each RECV receives, and the members of a collective's group. A property of
 * the plans' lists alone, so that the verifier and the timeline agree on it.
 *
 * The plans are those of plan_verify: every stage, for each of some data ranks. A column is the ranks of all stages
 * with one data rank. */
#ifndef ENGINE_PLAN_TRANSFER_MATCH_H
#define ENGINE_PLAN_TRANSFER_MATCH_H

#include "engine/plan/plan.h"

/* The other half of a SEND or RECV: an entry of the same queue of plan number `plan`; -1 before it is known. */
struct transfer_peer {
    int plan, entry;
};

/* One of the given plans. */
struct transfer_match {
    const struct plan *plan;
    int rank, stage, column;
    struct transfer_peer *peer[QUEUES]; /* [entries] of QUEUE_ACTIVATIONS and QUEUE_GRADIENTS */
};

/* `number`: of the plan among those given, `columns` of each stage. transfer_match_done, after a failure too, or for a
 * match that is all zeros. */
MUST_CHECK status_t transfer_match_init(struct transfer_match *m, const struct plan *plan, int columns, int number,
                                        struct err *e);
void transfer_match_done(struct transfer_match *m);
/* Fills in `peer` of every plan. FAILED_PRECONDITION names the first entry that has no other half, or another one. */
MUST_CHECK status_t transfer_match_all(struct transfer_match *all, int n, struct err *e);
/* The members of m's group among the n given: numbers *first, *first + *step, ..., *count of them. */
void transfer_match_group(const struct transfer_match *m, int n, enum plan_group group, int *first, int *step,
                          int *count);

#endif
