/* Walks a plan: each instruction of the compute queue becomes one call of an op or a kernel on the arena's memory; the
 * other queues are told how far compute is. No decision is taken here that the plan has not taken, and none on the
 * host: what changes from step to step and what a step came to is the device's (step_control.h).
 *
 *     execute.c             the walk, what the ranks have told each other
 *     execute_launch.c      what follows a LOAD captured once and launched again, where the device can
 *     execute_pace.c        how far it is ahead of the device
 *     execute_ops.c         LOAD, FORWARD, RECOMPUTE, BACKWARD_*, KEEP
 *     execute_gradients.c   ADD, ADD_SLOT, NORM, DECIDE
 *     execute_step.c        STEP: the optimizer, statistics, EMA
 *     execute_watch.c       what a profile and tools are told of it
 *     channel.h             QUEUE_DATA
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
#include "executor/engine/run/step_control.h"
#include "executor/engine/run/transfers.h"
#include "executor/engine/run/wait_clock.h"
#include "kernels/kernels.h"

struct profiler; /* profiler.h */

/* Places of a plan, LOADs and WAITs, that the walk may be ahead of a device when steps are not known to be short. */
enum { EXECUTE_AHEAD = 8 };

/* Points `ret` at the inputs of micro-batch k as batch.h says; they stay as they are until its next call, or longer
 * (load_stays). */
typedef status_t execute_load_fn(void *ctx, int k, struct batch *ret, struct err *e);

struct execution {
    const struct kernels *kernels;
    const struct arena *arena;
    struct channel *channel;       /* NULL when the world size is 1 */
    struct transfers *transfers;   /* NULL with one stage */
    struct wait_clock *wait_clock; /* closed by execution_close; NULL where the host waits, which knows how long */
    int64_t kernels_waited_ns;     /* by it, in the last plan taken */
    struct profiler *profiler;     /* NULL when this step is not profiled */
    struct step_controls control;
    bool *answer; /* on the device: to a question of look_at */

    /* Of the run, set by the caller. */
    uint64_t seed;
    struct decide decide;
    double clip_value; /* 0 = none */
    double ema_decay;
    const struct optimizer_config *optimizer;
    execute_load_fn *load;
    void *load_ctx;
    /* What is loaded stays until its step is taken, in memory of host_memory_new where steps run later: it is uploaded
     * from there; else from a copy. */
    bool load_stays;
    void (*progress)(void *ctx);
    void *progress_ctx;

    /* Of the step. */
    int64_t step;
    double learning_rate;
    uint64_t flags; /* RECORD_*, this rank's */

    /* Not NULL: after each op what it wrote is looked through for values that are not finite, and the first culprit in
     * the order of computation is noted here: slow, for a step that is run once more. */
    uint64_t *culprit;

    /* Private: execute_pace.c. */
    struct {
        void *events[EXECUTE_AHEAD];
        int64_t marked, passed; /* so many of them so far */
    } places;

    /* Private: execute_launch.c. */
    void **captures; /* [n_captures] of the training plan's parts, one behind each LOAD; NULL: not captured yet */
    int n_captures;
    bool walked;     /* a training step was: the kernels know all shapes */
    int64_t step_ns; /* that the last step took which has ended; 0: none has */
    bool refused;    /* a step could not be captured; why: */
    struct err refusal;
};

/* Sets kernels and arena, both borrowed until execution_close, and makes what the plans' steps need beside the arena.
 */
MUST_CHECK status_t execution_open(struct execution *x, const struct kernels *kernels, const struct arena *arena,
                                   const struct plan *const *plans, int n, struct err *e);
void execution_close(struct execution *x);

/* Runs each op of a plan once, of the first micro-batch, on whatever the arena holds, and waits: what a library loads
 * at its first call is loaded then, but for what later micro-batches alone call (products that add). Leaves activations
 * and gradients that mean nothing, as a step finds them anyway. */
MUST_CHECK status_t execute_rehearsal(struct execution *x, const struct plan *plan, struct err *e);

/* Queues all of a plan that was among those the arena was opened for; the first of them is the one that loads most
 * micro-batches a step, and the one that is captured. */
MUST_CHECK status_t execute(struct execution *x, const struct plan *plan, struct err *e);
/* Waits for the oldest one that is not taken: step_control_take, and then every rank's channel_confirm. Nothing of a
 * step counts before: none of it is reported, evaluated or written. */
MUST_CHECK status_t execution_take(struct execution *x, const struct step_control **ret, struct err *e);
/* Both, when nothing else is under way. *ret is valid until the next one. */
MUST_CHECK status_t execute_now(struct execution *x, const struct plan *plan, const struct step_control **ret,
                                struct err *e);

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
double execution_loss_sum(const struct step_control *c, const struct plan *plan, int *ret_bad);

/* The sum of a report (graph.h) over all samples, likewise. */
double execution_report_sum(const struct step_control *c, const struct plan *plan, int report);

/* The parts, one a file. */
MUST_CHECK status_t execute_calls(struct execution *x, const struct plan *plan, int from, int to, struct err *e);
MUST_CHECK status_t execute_launch(struct execution *x, const struct plan *plan, struct err *e);
bool execute_can_launch(const struct execution *x, const struct plan *plan);
/* Whether the host may leave all of it to the device, and hear of it when it is done. */
bool execute_is_short(const struct execution *x, const struct plan *plan);
MUST_CHECK status_t execute_pace_open(struct execution *x, struct err *e);
void execute_pace_close(struct execution *x);
/* After an instruction's calls. */
MUST_CHECK status_t execute_pace(struct execution *x, const struct plan *plan, const struct instruction *i,
                                 struct err *e);
/* At the end of a walk: the device has come to its last place. */
MUST_CHECK status_t execute_pace_out(struct execution *x, struct err *e);
MUST_CHECK status_t execute_op(struct execution *x, const struct plan *plan, const struct instruction *i,
                               struct err *e);
MUST_CHECK status_t execute_gradient(struct execution *x, const struct plan *plan, const struct instruction *i,
                                     struct err *e);
MUST_CHECK status_t execute_step(struct execution *x, const struct plan *plan, const struct instruction *i,
                                 struct err *e);

/* Around a step, and around the calls of compute instruction n: ranges for tools, times for the step's profiler. */
void execute_watch_step(const struct execution *x, const struct plan *plan);
void execute_watched(const struct execution *x);
void execute_watch_instruction(const struct execution *x, const struct plan *plan, int n);
void execute_watched_instruction(const struct execution *x, const struct plan *plan, int n);

/* A culprit as a number: of two, the smaller one computed first, on whatever rank. CULPRIT_NONE is larger than all. */
#define CULPRIT_NONE UINT64_MAX
struct culprit {
    bool backward;
    int micro_batch;
    const char *op;
};
struct culprit execution_culprit(const struct graph *g, uint64_t number);

#endif
