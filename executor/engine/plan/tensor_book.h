/* The verifier's book of one rank's tensors: which bytes of FAMILY_ACTIVATIONS and FAMILY_BATCH hold which tensor, of
 * which micro-batch. A read must find what it names, a write ends what it falls on, a transfer holds its bytes from the
 * moment it is posted until it is waited for. Sentences name the tensor; the caller puts rank and instruction before.
 */
#ifndef EXECUTOR_ENGINE_PLAN_TENSOR_BOOK_H
#define EXECUTOR_ENGINE_PLAN_TENSOR_BOOK_H

#include "executor/engine/plan/live_set.h"
#include "executor/engine/plan/plan.h"

/* A tensor in one of its copies. */
struct tensor_value {
    int micro_batch;
    uint32_t serial; /* of the live range that held it when it was written; 0 = never */
};

struct tensor_book {
    const struct plan *plan;
    struct live_set activations, batch;
    struct tensor_value *values;
    int *first[LIVES]; /* [n_tensors] its first copy in `values`; a place for both lives has the same */
};

/* tensor_book_done, after a failure too. */
MUST_CHECK status_t tensor_book_init(struct tensor_book *b, const struct plan *plan, struct err *e);
void tensor_book_done(struct tensor_book *b);

/* LOAD .. KEEP. */
MUST_CHECK status_t tensor_book_touch(struct tensor_book *b, const struct instruction *i, struct err *e);
/* SEND and RECV of a tensor: posted, and waited for. */
MUST_CHECK status_t tensor_book_post(struct tensor_book *b, const struct instruction *i, struct err *e);
void tensor_book_arrived(struct tensor_book *b, const struct instruction *i);

#endif
