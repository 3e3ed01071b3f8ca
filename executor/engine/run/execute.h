/* Walks a plan: each instruction of the compute queue becomes one call of an op or a kernel on the arena's memory, and
 * the channel is told how far the queue is. No decision is taken here that the plan has not taken.
 *
 * One thread, the compute thread. Nothing is allocated. */
#ifndef EXECUTOR_ENGINE_RUN_EXECUTE_H
#define EXECUTOR_ENGINE_RUN_EXECUTE_H

#include "executor/engine/plan/plan.h"
#include "executor/engine/run/arena.h"
#include "executor/engine/run/channel.h"
#include "kernels/kernels.h"

/* What the ranks tell each other once a step: 8 (1 + micro-batches) bytes. */
struct step_record {
    uint64_t flags;  /* RECORD_*: or-ed over the ranks */
    double losses[]; /* [micro_batches] sums over the micro-batch's targets; a rank fills in its own */
};
enum { RECORD_STOP = 1, RECORD_SKIP_CHECKPOINT = 2, RECORD_CHECKPOINT_FAILED = 4 };
size_t step_record_bytes(int micro_batches);

/* Fills (B,T) tokens and targets of micro-batch k. */
typedef status_t execute_load_fn(void *ctx, int k, int32_t *tokens, int32_t *targets, struct err *e);

struct execution {
    const struct kernels *kernels;
    struct channel *channel;              /* NULL when the world size is 1 */
    struct step_record *record, *records; /* this rank's, and room for all ranks' */

    /* The arena, by what is in it. */
    float *parameters, *moment1, *moment2; /* parameter space */
    float *gradients;                      /* gradient buffers, one behind the other */
    char *activations, *batch;
    void *workspace;
    double *chunk_sums;

    /* Of the step, set by the caller. */
    uint64_t seed;
    int64_t step;
    float loss_scale;   /* 1 / valid targets of the step */
    double clip_norm;   /* 0 = none */
    struct adamw adamw; /* weight_decay is for matrices; gradient_scale is set by DECIDE */
    execute_load_fn *load;
    void *load_ctx;
    void (*progress)(void *ctx);
    void *progress_ctx;

    /* Results. */
    double grad_norm;
    bool apply; /* the flag that STEP obeys: the norm is finite */
};

/* Points an execution's memory into an arena that was opened for this plan among others. */
void execution_attach(struct execution *x, const struct arena *arena, const struct plan *plan);

MUST_CHECK status_t execute(struct execution *x, const struct plan *plan, struct err *e);

/* Bytes of a tensor in the arena; NULL for a tensor that this plan never makes. */
void *execution_tensor(const struct execution *x, const struct plan *plan, int tensor);
float *execution_slot(const struct execution *x, const struct plan *plan, int buffer, int slot);

/* The sum of all micro-batches' losses in their order: the same bits in every layout. Which one is the first that is
 * not finite: *ret_bad, or -1. */
double execution_loss_sum(const struct execution *x, const struct plan *plan, int *ret_bad);
/* Or of all ranks' flags. */
uint64_t execution_flags(const struct execution *x, const struct plan *plan);

/* Runs micro-batch k forward once more, op by op, and names the first op whose output is not finite ("" = none). Only
 * where a plan of world size 1 or the owner asks: k must be one of this rank's. */
MUST_CHECK status_t execute_find_bad_op(struct execution *x, const struct plan *plan, int k, const char **ret_op,
                                        struct err *e);

#endif
