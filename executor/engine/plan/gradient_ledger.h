/* The verifier's book of one rank's gradients: for each buffer and each segment (the part of a slot that lies in one
 * part of one bucket), which lanes and which rounds of micro-batches have been added up in it. Every entry is refused
 * unless it keeps the order that "same bits" promises. Sentences name the parameter; the caller puts rank and
 * instruction before.
 */
#ifndef EXECUTOR_ENGINE_PLAN_GRADIENT_LEDGER_H
#define EXECUTOR_ENGINE_PLAN_GRADIENT_LEDGER_H

#include "executor/engine/plan/live_set.h"
#include "executor/engine/plan/plan.h"

struct segment {
    int slot, bucket;   /* bucket -1: lands here from another stage */
    int64_t begin, end; /* elements in gradient space */
    bool own;           /* what this rank steps, or sends to the owner's stage */
    int added;          /* owner's slot: siblings that were added to it */
    bool done;          /* normed; of a sibling: added to the owner's slot, or sent to its stage */
};

/* Lanes [lane, lane + lanes) of rounds [round, round + rounds); lanes 0 = nothing yet. */
struct ledger_cell {
    int lane, lanes, round, rounds;
    int writers, last_writer; /* of the newest micro-batch: reverse ops that wrote it, and the last of them */
    int held;                 /* transfers that read or write it just now */
};

struct gradient_ledger {
    const struct plan *plan;
    struct live_set *communication; /* borrowed: FAMILY_COMMUNICATION */
    struct segment *segments;       /* in the order of gradient space, then what lands */
    int n_segments, n_buffers;
    int *first_segment, *n_of_slot; /* [n_slots] */
    struct ledger_cell *cells;      /* [n_buffers][n_segments] */
    int *staged;                    /* [n_buckets] cells of buffer 0 that hold something */
    int *input_done;                /* [n_reverse] flights whose BACKWARD_INPUT is done */
    bool *stepped;                  /* [n_pieces] */
    bool decided, norms_known;
};

/* gradient_ledger_done, after a failure too. */
MUST_CHECK status_t gradient_ledger_init(struct gradient_ledger *l, const struct plan *plan,
                                         struct live_set *communication, struct err *e);
void gradient_ledger_done(struct gradient_ledger *l);

MUST_CHECK status_t gradient_ledger_backward(struct gradient_ledger *l, const struct instruction *i, struct err *e);
MUST_CHECK status_t gradient_ledger_add(struct gradient_ledger *l, const struct instruction *i, struct err *e);
MUST_CHECK status_t gradient_ledger_add_slot(struct gradient_ledger *l, const struct instruction *i, struct err *e);
/* A reduction starts: the rank's tree must be whole; nobody may touch it from here on ... */
MUST_CHECK status_t gradient_ledger_reduce(struct gradient_ledger *l, const struct instruction *i, struct err *e);
/* ... until the wait for it, after which this rank's part of it (ZeRO 0: all of it) holds all lanes. */
MUST_CHECK status_t gradient_ledger_reduced(struct gradient_ledger *l, const struct instruction *i, struct err *e);
/* SEND and RECV of a gradient: posted, and waited for. */
MUST_CHECK status_t gradient_ledger_post(struct gradient_ledger *l, const struct instruction *i, struct err *e);
void gradient_ledger_arrived(struct gradient_ledger *l, const struct instruction *i);
MUST_CHECK status_t gradient_ledger_norm(struct gradient_ledger *l, const struct instruction *i, struct err *e);
/* Every weight that this rank steps is in the norm; called when the norms leave, and by DECIDE. */
MUST_CHECK status_t gradient_ledger_check_norms(const struct gradient_ledger *l, struct err *e);
MUST_CHECK status_t gradient_ledger_decide(struct gradient_ledger *l, struct err *e);
MUST_CHECK status_t gradient_ledger_step(struct gradient_ledger *l, const struct instruction *i, struct err *e);
/* At the end of the step: every piece was stepped. A use of a shared parameter that never reached the owner's slot was
 * missed by its norm; what is in flight is the queues' business. */
MUST_CHECK status_t gradient_ledger_end(const struct gradient_ledger *l, struct err *e);

#endif
