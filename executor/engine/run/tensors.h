/* The canonical logical state of a job, whatever its layout: which tensors a checkpoint has, and which parts of them
 * this rank holds and where.
 *
 *     NAME                     every parameter, fp32: the weight or its master; batch statistics by their names
 *     optimizer.<state>.NAME   the optimizer's states of every parameter that it steps
 *     ema.NAME                 averages, where there are any
 */
#ifndef EXECUTOR_ENGINE_RUN_TENSORS_H
#define EXECUTOR_ENGINE_RUN_TENSORS_H

#include "executor/engine/checkpoint/tensor.h"
#include "executor/engine/run/execute.h"

enum state_kind { STATE_WEIGHT, STATE_OPTIMIZER, STATE_AVERAGE };

struct state_tensor {
    enum state_kind kind;
    int parameter, state; /* state: number in the optimizer, of STATE_OPTIMIZER */
    bool elementwise;     /* shaped like its parameter and cut like it */
};

struct state_tensors {
    struct checkpoint_tensor *tensors; /* [n], equal on every rank */
    struct state_tensor *of;           /* [n] */
    char (*names)[CHECKPOINT_NAME_BYTES];
    int n;
};

/* RESOURCE_EXHAUSTED. */
MUST_CHECK status_t state_tensors_new(const struct plan *plan, struct state_tensors **ret, struct err *e);
struct state_tensors *state_tensors_free(struct state_tensors *s);
CLEANUP_DEFINE(struct state_tensors *, state_tensors_free)

/* The pieces of them that this rank holds, and where they lie in the arena. `shared`: what several data ranks hold
 * alike (ZeRO 0) is dealt out among them, so that every element belongs to exactly one rank of the gang: what each rank
 * writes. Both arrays have room for state_pieces_most. Returns how many. */
int state_pieces_most(const struct state_tensors *s, const struct plan *plan);
int state_pieces(const struct state_tensors *s, const struct execution *x, const struct plan *plan, bool shared,
                 struct checkpoint_piece *pieces, float **memory);

#endif
