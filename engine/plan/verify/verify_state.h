/* The verifier's state of one rank, for the files of verify/.
 *
 *   verify.c            the simulation, and the sums over all ranks
 *   verify_places.c     checks that need no simulation, plan by plan
 *   tensor_state.c, parameter_state.c, gradient_state.c   what the rank's bytes hold at each moment */
#ifndef ENGINE_PLAN_VERIFY_VERIFY_STATE_H
#define ENGINE_PLAN_VERIFY_VERIFY_STATE_H

#include "engine/plan/transfer_match.h"
#include "engine/plan/verify/gradient_state.h"
#include "engine/plan/verify/parameter_state.h"
#include "engine/plan/verify/tensor_state.h"

/* One rank in the simulation. */
struct rank_state {
    const struct plan *plan;
    struct transfer_match *match;
    int rank;
    int at;                 /* next instruction of the compute queue */
    int posted[QUEUES];     /* entries that compute has reached */
    int first_open[QUEUES]; /* every transfer before this one is done */
    int data_done;          /* data queue: entries done */
    int data_waited;        /* data queue: entries waited for */
    bool *done[QUEUES];     /* [entries] of QUEUE_ACTIVATIONS and QUEUE_GRADIENTS: the transfer is done ... */
    bool *waited[QUEUES];   /* ... and waited for */
    bool *loss_known;       /* [own micro-batches] their loss is known */
    int n_losses;
    int *forwards;                            /* [n_ops] */
    bool exchanged;                           /* the step results of all ranks are here */
    bool statistics_copied, statistics_known; /* own running moments are in their array; all of them are */
    struct live_set communication;
    struct tensor_state tensors;
    struct parameter_state parameters;
    struct gradient_state gradients;
};

/* Messages do not name the rank: the caller adds it. */
MUST_CHECK status_t verify_places(const struct plan *plan, struct err *e);

#endif
