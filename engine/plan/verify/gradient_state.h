/* The gradients of one rank during the simulation. For each gradient buffer and each segment (the part of a use that
 * lies in one part of one bucket), it holds which lanes and which rounds of micro-batches have been added up. Every
 * instruction is refused unless it keeps the order of sums that "same bits" (engine/README.md) promises. Messages name
 * the parameter; the caller adds rank and instruction. */
#ifndef ENGINE_PLAN_VERIFY_GRADIENT_STATE_H
#define ENGINE_PLAN_VERIFY_GRADIENT_STATE_H

#include "engine/plan/plan.h"
#include "engine/plan/verify/live_set.h"

struct segment {
    int use, bucket;    /* bucket -1: a sibling that is received from another stage */
    int64_t begin, end; /* elements in gradient space */
    bool own;           /* this rank steps it, or sends it to the owning stage */
    int added;          /* owning use: siblings that were added to it */
    bool done;          /* normed; a sibling: added to the owning use, or sent to its stage */
};

/* Lanes [lane, lane + lanes) of rounds [round, round + rounds); lanes 0 = nothing yet. */
struct gradient_sum {
    int lane, lanes, round, rounds;
    int writers, last_writer; /* of the newest micro-batch: reverse ops that wrote it, and the last of them */
    int transfers;            /* posted transfers and reductions that use it */
};

struct gradient_state {
    const struct plan *plan;
    struct live_set *communication; /* borrowed: FAMILY_COMMUNICATION */
    struct segment *segments;       /* in the order of gradient space, then received siblings */
    int n_segments, n_buffers;
    int *first_segment, *n_of_use; /* [n_uses] */
    struct gradient_sum *sums;     /* [n_buffers][n_segments] */
    int *staged;                   /* [n_buckets] cells of buffer 0 that hold something */
    int *input_done;               /* [n_reverse] flights whose BACKWARD_INPUT is done */
    bool *stepped;                 /* [n_shards] */
    bool decided, norms_known;
};

/* gradient_state_done, after a failure too. */
MUST_CHECK status_t gradient_state_init(struct gradient_state *l, const struct plan *plan,
                                        struct live_set *communication, struct err *e);
void gradient_state_done(struct gradient_state *l);

MUST_CHECK status_t gradient_state_backward(struct gradient_state *l, const struct instruction *i, struct err *e);
MUST_CHECK status_t gradient_state_add(struct gradient_state *l, const struct instruction *i, struct err *e);
MUST_CHECK status_t gradient_state_add_use(struct gradient_state *l, const struct instruction *i, struct err *e);
/* A reduction starts: the rank's tree must be complete. Nothing may touch it from here on ... */
MUST_CHECK status_t gradient_state_reduce(struct gradient_state *l, const struct instruction *i, struct err *e);
/* ... until the wait for it. After that, this rank's part (ZeRO 0: all of it) holds all lanes. */
MUST_CHECK status_t gradient_state_reduced(struct gradient_state *l, const struct instruction *i, struct err *e);
/* SEND and RECV of a gradient: posted, and waited for. */
MUST_CHECK status_t gradient_state_post(struct gradient_state *l, const struct instruction *i, struct err *e);
void gradient_state_transferred(struct gradient_state *l, const struct instruction *i);
MUST_CHECK status_t gradient_state_norm(struct gradient_state *l, const struct instruction *i, struct err *e);
/* Checks that every weight that this rank steps is in the norm; called at EXCHANGE_NORMS and DECIDE. */
MUST_CHECK status_t gradient_state_check_norms(const struct gradient_state *l, struct err *e);
MUST_CHECK status_t gradient_state_decide(struct gradient_state *l, struct err *e);
MUST_CHECK status_t gradient_state_step(struct gradient_state *l, const struct instruction *i, struct err *e);
/* At the end of the step: every shard was stepped. (The norm check finds a sibling that was never added, and the queues
 * a transfer that was never waited for.) */
MUST_CHECK status_t gradient_state_end(const struct gradient_state *l, struct err *e);

#endif
