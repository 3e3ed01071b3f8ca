/* The tensors of one rank during the simulation: which bytes of FAMILY_ACTIVATIONS and FAMILY_BATCH hold which tensor
 * of which micro-batch. A read must find the tensor that it names. A write ends the lifetime of everything in its
 * bytes. A transfer reserves its bytes from the moment it is posted until it is waited for. Messages name the tensor;
 * the caller adds rank and instruction. */
#ifndef ENGINE_PLAN_VERIFY_TENSOR_STATE_H
#define ENGINE_PLAN_VERIFY_TENSOR_STATE_H

#include "engine/plan/plan.h"
#include "engine/plan/verify/live_set.h"

/* A tensor in one of its copies. */
struct tensor_value {
    int micro_batch;
    uint32_t serial; /* of the live range that held it when it was written; 0 = never */
};

struct tensor_state {
    const struct plan *plan;
    struct live_set activations, batch;
    struct tensor_value *values;
    int *first[LIFETIMES]; /* [n_tensors] its first copy in `values`; a place for both lifetimes has the same */
};

/* tensor_state_done, after a failure too. */
MUST_CHECK status_t tensor_state_init(struct tensor_state *b, const struct plan *plan, struct err *e);
void tensor_state_done(struct tensor_state *b);

/* LOAD .. COPY_GRADIENT. */
MUST_CHECK status_t tensor_state_touch(struct tensor_state *b, const struct instruction *i, struct err *e);
/* SEND and RECV of a tensor: posted, and waited for. */
MUST_CHECK status_t tensor_state_post(struct tensor_state *b, const struct instruction *i, struct err *e);
void tensor_state_transferred(struct tensor_state *b, const struct instruction *i);

#endif
