/* Walks a plan: each instruction of the compute queue becomes one call of an op or a kernel on the arena's memory; the
 * other queues are told how far compute is. No decision is taken here that the plan has not taken.
 *
 *     execute.c             the walk, the step's record, what the ranks have told each other
 *     execute_ops.c         LOAD, FORWARD, RECOMPUTE, BACKWARD_*, KEEP
 *     execute_gradients.c   ADD, ADD_SLOT, NORM, DECIDE
 *     execute_step.c        STEP: the optimizer, statistics, EMA
 *     channel.h             QUEUE_DATA, on a thread of its own
 *     transfers.h           SEND and RECV, posted by this thread
 *
 * What the arena holds is the device's: the host sees of it what the table of kernels uploads and downloads, nothing
 * else. One thread, the compute thread. Nothing is allocated. */
#ifndef EXECUTOR_ENGINE_RUN_EXECUTE_H
#define EXECUTOR_ENGINE_RUN_EXECUTE_H

#include "executor/engine/data/batch.h"
#include "executor/engine/plan/plan.h"
#include "executor/engine/run/arena.h"
#include "executor/engine/run/channel.h"
#include "executor/engine/run/transfers.h"
#include "kernels/kernels.h"

struct optimizer_config; /* executor/engine/optimizer/optimizer.h */
struct spikes;           /* spikes.h */
struct profiler;         /* profiler.h */

/* What the ranks tell each other once a step, united: each fills in its own and leaves the rest zero. */
struct step_record {
    uint64_t flags;  /* RECORD_* */
    double losses[]; /* [micro_batches] sums over the micro-batch's targets; then as many of each report's */
};
enum { RECORD_STOP = 1, RECORD_SKIP_CHECKPOINT = 2, RECORD_CHECKPOINT_FAILED = 4 };
size_t step_record_bytes(const struct plan *plan); /* a multiple of 8 */

/* Points `ret` at the inputs of micro-batch k as batch.h says; they stay the callee's until its next call. */
typedef status_t execute_load_fn(void *ctx, int k, struct batch *ret, struct err *e);

/* Why a step was not applied. */
enum step_skip { STEP_APPLIED, STEP_OVERFLOW, STEP_SPIKE, STEP_NOT_FINITE };

struct execution {
    const struct kernels *kernels;
    const struct arena *arena;
    struct channel *channel;     /* NULL when the world size is 1 */
    struct transfers *transfers; /* NULL with one stage */
    struct profiler *profiler;   /* NULL when this step is not profiled */
    struct step_record *record;
    /* Of execution_open. On the device: what the record's losses will be, and the answer to a question. On the host:
     * the chunk sums, whole on every rank after the step's DECIDE. */
    double *results;
    bool *answer;
    double *norms;
    int results_due; /* after so many instructions the results are downloaded */

    /* Of the step, set by the caller. */
    uint64_t seed;
    int64_t step;
    float loss_scale;      /* of the losses' gradients: fp16's scale / valid targets of the step */
    double gradient_scale; /* what gradients are multiplied by before they are used: fp16's 1 / scale, else 1 */
    bool skip_overflows;   /* fp16: a norm that is not finite is an overflow, and the step is skipped */
    double clip_norm;      /* 0 = none */
    double clip_value;     /* 0 = none */
    struct spikes *spikes; /* NULL: no step is skipped for its norm */
    const struct optimizer_config *optimizer;
    double learning_rate, ema_decay;
    int64_t updates; /* 1 for the first update */
    execute_load_fn *load;
    void *load_ctx;
    void (*progress)(void *ctx);
    void *progress_ctx;

    /* Not NULL: after each op what it wrote is looked through for values that are not finite, and the first culprit in
     * the order of computation is noted here: slow, for a step that is run once more. */
    uint64_t *culprit;

    /* Results. */
    double grad_norm, clip_scale; /* of the gradients times gradient_scale */
    enum step_skip skip;          /* what STEP obeys */
};

/* Sets kernels and arena, both borrowed until execution_close, and makes what the plans' steps need beside the arena.
 */
MUST_CHECK status_t execution_open(struct execution *x, const struct kernels *kernels, const struct arena *arena,
                                   const struct plan *const *plans, int n, struct err *e);
void execution_close(struct execution *x);

/* Runs a plan that was among those the arena was opened for. */
MUST_CHECK status_t execute(struct execution *x, const struct plan *plan, struct err *e);

/* All in the device's memory. Bytes of a place in the arena; NULL for nowhere. */
void *execution_at(const struct execution *x, struct plan_place place);
/* A tensor as it was left by micro-batch number `flight` on this rank. */
void *execution_tensor(const struct execution *x, const struct plan *plan, int tensor, int flight);
/* A slot's gradient in a buffer. */
float *execution_slot(const struct execution *x, const struct plan *plan, int buffer, int slot);
/* What kernels and the optimizer may use as they like. */
void *execution_workspace(const struct execution *x, const struct plan *plan);
double *execution_chunk_sums(const struct execution *x, const struct plan *plan);

/* The sum of all micro-batches' losses in their order: the same bits in every layout. Which one is the first that is
 * not finite: *ret_bad, or -1. */
double execution_loss_sum(const struct execution *x, const struct plan *plan, int *ret_bad);

/* The sum of a report (graph.h) over all samples, likewise. */
double execution_report_sum(const struct execution *x, const struct plan *plan, int report);

/* The parts, one a file. */
MUST_CHECK status_t execute_op(struct execution *x, const struct plan *plan, const struct instruction *i,
                               struct err *e);
MUST_CHECK status_t execute_gradient(struct execution *x, const struct plan *plan, const struct instruction *i,
                                     struct err *e);
MUST_CHECK status_t execute_step(struct execution *x, const struct plan *plan, const struct instruction *i,
                                 struct err *e);

/* A culprit as a number: of two, the smaller one computed first, on whatever rank. CULPRIT_NONE is larger than all. */
#define CULPRIT_NONE UINT64_MAX
struct culprit {
    bool backward;
    int micro_batch;
    const char *op;
};
struct culprit execution_culprit(const struct graph *g, uint64_t number);

#endif
