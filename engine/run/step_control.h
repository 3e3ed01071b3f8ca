/* What is sent to the device when a step begins, and read back when it has ended: one struct on the device, and on the
 * host a copy for each step in flight, in memory that the device reads and writes directly. Between the two the host
 * waits for nothing.
 *
 *     TRY(step_control_open(&c, kernels, plans, n, e));
 *     TRY(step_control_set(&c, &decision, e));              // start of the first step; waits
 *     step_control_begin(&c)->step = ...;                   // a step: what the host sets
 *     TRY(step_control_upload(&c, e));                      // the first call of the step
 *     TRY(step_control_stage(&c, &batch, e));               // copies a batch that does not stay
 *     TRY(step_control_download(&c, plan, e));              // the last call of the step
 *     TRY(step_control_end(&c, e));
 *     TRY(step_control_take(&c, &result, e));               // waits for the oldest step not taken
 *
 * If calls are not deferred, batches are not copied. One thread. */
#ifndef ENGINE_RUN_STEP_CONTROL_H
#define ENGINE_RUN_STEP_CONTROL_H

#include "engine/data/batch.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

/* Steps in flight: the host issues one while the device runs the one before. */
enum { CONTROL_STEPS = 2 };
/* Batches that are copied for a step before the host must wait for the device. */
enum { CONTROL_STAGED = 2 };

/* Flags of the step results. */
enum { STEP_FLAG_STOP = 1, STEP_FLAG_SKIP_CHECKPOINT = 2, STEP_FLAG_CHECKPOINT_FAILED = 4 };

struct step_control {
    struct decision decision;
    /* Set by the host. */
    int64_t step;                          /* batches consumed before this one */
    double learning_rate[OPTIMIZER_RATES]; /* optimizer_rates */
    /* The step results, which the ranks exchange once a step. Each rank fills in its own values and leaves the rest
     * zero; a bitwise or unites them. */
    uint64_t flags; /* STEP_FLAG_* */
    /* [step_control_results] sums over the targets of a micro-batch or sample; then as many of each report's. */
    double losses[];
};

/* The host's side of one step in flight. */
struct step_control_copy {
    struct step_control *host;
    char *staging[BATCH_INPUTS]; /* (max_staged, input_bytes); NULL if calls are not deferred */
    int staged;                  /* micro-batches of the step */
    void *event;
};

struct step_controls {
    const struct kernels *kernels;
    struct step_control *device;
    size_t bytes;    /* of a step_control */
    int max_batches; /* of a training step */
    int max_staged;
    size_t input_bytes[BATCH_INPUTS]; /* of a micro-batch on the host; 0: no plan loads it */
    struct step_control_copy copies[CONTROL_STEPS];
    int64_t begun, taken; /* steps */
};

/* Length of the step results in words of 8 bytes, from `flags` on. */
int64_t step_control_result_words(const struct plan *plan);

/* The losses of a plan's results: one for each micro-batch, and one for each sample of an evaluation, whose sum must
 * not depend on how the samples are divided into micro-batches. */
int step_control_results(const struct plan *plan);

/* plans[0] loads most micro-batches. The kernels are borrowed until close. */
MUST_CHECK status_t step_control_open(struct step_controls *c, const struct kernels *k, const struct plan *const *plans,
                                      int n, struct err *e);
void step_control_close(struct step_controls *c);
MUST_CHECK status_t step_control_set(struct step_controls *c, const struct decision *first, struct err *e);

/* The newest step's copy; valid until CONTROL_STEPS more steps have begun. */
struct step_control_copy *step_control_newest(struct step_controls *c);

/* Fewer than CONTROL_STEPS must be in flight. */
struct step_control *step_control_begin(struct step_controls *c);
/* Copies a batch and points it at the copy, for evaluations and steps that are run again. After every CONTROL_STAGED
 * batches it waits for the device. Batches of training steps need no copy: they stay in the loader's ring. */
MUST_CHECK status_t step_control_stage(struct step_controls *c, struct batch *batch, struct err *e);
MUST_CHECK status_t step_control_upload(struct step_controls *c, struct err *e);
MUST_CHECK status_t step_control_download(struct step_controls *c, const struct plan *plan, struct err *e);
MUST_CHECK status_t step_control_end(struct step_controls *c, struct err *e);
/* *ret is valid until the step after CONTROL_STEPS - 1 more begins. */
MUST_CHECK status_t step_control_take(struct step_controls *c, const struct step_control **ret, struct err *e);

#endif
