/* The state of executing plans on one rank: the device's arena, what the run and the step set, and the addresses of
 * everything that a plan names. It lies below all code that executes instructions (execute.h), the data queue and
 * the transfers: these read addresses here and never call each other through it.
 *
 * All addresses are in the device's memory. The host reads and writes it only through upload and download of the
 * kernel table. One thread, the compute thread; the data queue's thread reads the same struct while a step runs. */
#ifndef ENGINE_RUN_EXECUTION_H
#define ENGINE_RUN_EXECUTION_H

#include "engine/data/batch.h"
#include "engine/plan/plan.h"
#include "engine/run/arena.h"
#include "engine/run/step_control.h"
#include "engine/run/throttle.h"
#include "engine/run/wait_clock.h"
#include "kernels/kernels.h"

struct data_queue; /* data_queue.h */
struct transfers;  /* transfers.h */
struct profiler;   /* profiler.h */

/* Points `ret` at the inputs of micro-batch k (batch.h). They stay valid until the next call, or until the step is
 * taken if execution.load_stays. */
typedef status_t execution_load_fn(void *ctx, int k, struct batch *ret, struct err *e);

struct execution {
    const struct kernels *kernels;
    const struct arena *arena;
    struct data_queue *data_queue; /* NULL when the world size is 1 */
    struct transfers *transfers;   /* NULL with one stage */
    struct wait_clock *wait_clock; /* closed by execution_close; NULL if the host waits for other ranks itself */
    int64_t kernels_waited_ns;     /* measured by wait_clock, in the last plan taken */
    struct profiler *profiler;     /* NULL when this step is not profiled */
    struct step_controls control;
    bool *finite; /* on the device: the result of a scan for values that are not finite */

    /* Of the run, set by the caller. */
    uint64_t seed;
    struct decision_rules decide;
    double clip_value; /* 0 = none */
    double ema_decay;
    const struct optimizer_config *optimizer;
    execution_load_fn *load;
    void *load_ctx;
    /* Loaded batches stay until their step is taken, in memory of host_memory_new if calls are deferred: they are
     * uploaded from there. Otherwise from a copy. */
    bool load_stays;
    void (*progress)(void *ctx);
    void *progress_ctx;

    /* Of the step. */
    int64_t step;
    double learning_rate;
    uint64_t flags; /* RECORD_*, this rank's */

    /* Not NULL: what each op writes is scanned for values that are not finite, and the first culprit in the order of
     * computation is stored here. Slow: for a step that is run once more. */
    uint64_t *culprit;

    struct throttle throttle;

    /* Captured calls of the training plan (execute.c). */
    struct {
        void **parts; /* [n_parts], one behind each LOAD; NULL: not captured yet */
        int n_parts;
        bool shapes_known; /* a training step was executed call by call: the kernels know all shapes */
        bool refused;      /* the device could not capture a step; why: */
        struct err refusal;
    } capture;
    int64_t step_ns; /* of the newest step that has ended; 0: none has */
};

/* Sets kernels and arena, both borrowed until execution_close, and allocates what the plans' steps need beside the
 * arena. plans[0] is the one that loads most micro-batches a step, and the one that is captured. */
MUST_CHECK status_t execution_open(struct execution *x, const struct kernels *kernels, const struct arena *arena,
                                   const struct plan *const *plans, int n, struct err *e);
void execution_close(struct execution *x);

/* Calls x->progress if there is one. */
void execution_progress(const struct execution *x);

/* Bytes of a place in the arena; NULL for nowhere. */
void *execution_at(const struct execution *x, struct plan_place place);
/* A tensor as in-in_flight micro-batch number `in_flight` of this rank left it. */
void *execution_tensor(const struct execution *x, const struct plan *plan, int tensor, int in_flight);
/* A use's gradient in a buffer. */
float *execution_use(const struct execution *x, const struct plan *plan, int buffer, int use);
/* Scratch memory of kernels and the optimizer. */
void *execution_workspace(const struct execution *x, const struct plan *plan);
/* The array of running moments, plan->statistics_bytes (plan.h, STATISTICS). */
float *execution_statistics(const struct execution *x, const struct plan *plan);
/* [plan->norm_chunks] sums of squares, one for each chunk. */
double *execution_chunk_sums(const struct execution *x, const struct plan *plan);

#endif
