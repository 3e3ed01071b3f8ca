/* The state of a job as a list of tensors that does not depend on the layout: which tensors a checkpoint has, which
 * pieces of them this rank holds, and where these are in the arena.
 *
 *     NAME                     every parameter, fp32: the weight or its master; batch statistics by their names
 *     optimizer.<state>.NAME   the optimizer's states of every parameter that it steps
 *     ema.NAME                 averages, if the job has them
 */
#ifndef ENGINE_RUN_STATE_TENSORS_H
#define ENGINE_RUN_STATE_TENSORS_H

#include "engine/checkpoint/tensor.h"
#include "engine/run/execution.h"

enum state_kind { STATE_WEIGHT, STATE_OPTIMIZER, STATE_AVERAGE };

struct state_tensor {
    enum state_kind kind;
    int parameter, state; /* state: number in the optimizer, of STATE_OPTIMIZER */
    bool elementwise;     /* has the shape of its parameter and is divided like it */
};

struct state_tensors {
    struct checkpoint_tensor *tensors; /* [n], equal on every rank */
    struct state_tensor *of;           /* [n] */
    char (*names)[CHECKPOINT_NAME_BYTES];
    int n;
};

struct state_tensors *state_tensors_new(const struct plan *plan);
struct state_tensors *state_tensors_free(struct state_tensors *s);
CLEANUP_DEFINE(struct state_tensors *, state_tensors_free)

/* The pieces of them that this rank holds, and their addresses in the arena. With `shared`, elements that several data
 * ranks hold (ZeRO 0) are divided among these ranks, so that every element belongs to exactly one rank of the gang:
 * this is what each rank writes. Both arrays have capacity for state_segments_max pieces. x NULL: there is no arena
 * yet, and no address is set. Returns the number of pieces. */
int state_segments_max(const struct state_tensors *s, const struct plan *plan);
int state_segments(const struct state_tensors *s, const struct execution *x, const struct plan *plan, bool shared,
                   struct checkpoint_segment *segments, float **memory);

#endif
