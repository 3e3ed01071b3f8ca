/* What goes to the device as a step begins and comes back after it, so that the host waits for nothing in between: one
 * struct on the device, and on the host a copy for each step under way, in memory that the device reads and writes by
 * itself.
 *
 *     TRY(step_control_open(&c, kernels, plans, n, e));
 *     TRY(step_control_set(&c, &decision, e));              // what the first step begins with; waits
 *     step_control_begin(&c)->step = ...;                   // a step: the host's words
 *     TRY(step_control_upload(&c, e));                      // the first of the step's calls
 *     TRY(step_control_stage(&c, &batch, e));               // a batch that does not stay: there it does until the end
 *     TRY(step_control_download(&c, plan, e));              // the last of its calls
 *     TRY(step_control_end(&c, e));
 *     TRY(step_control_take(&c, &result, e));               // of the oldest step not taken: waits for it
 *
 * Where calls have run when they return a batch is not copied, and stays where its loader has it. One thread. */
#ifndef EXECUTOR_ENGINE_RUN_STEP_CONTROL_H
#define EXECUTOR_ENGINE_RUN_STEP_CONTROL_H

#include "executor/engine/data/batch.h"
#include "executor/engine/optimizer/optimizer.h"
#include "executor/engine/plan/plan.h"
#include "kernels/kernels.h"

/* One step is prepared while the one before runs. */
enum { CONTROL_STEPS = 2 };
/* Batches that are copied for a step before the device is waited for. */
enum { CONTROL_STAGED = 2 };

enum { RECORD_STOP = 1, RECORD_SKIP_CHECKPOINT = 2, RECORD_CHECKPOINT_FAILED = 4 };

struct step_control {
    struct decision decision;
    /* The host's words. */
    int64_t step;                          /* batches consumed before this one */
    double learning_rate[OPTIMIZER_RATES]; /* optimizer_rates */
    /* The record: what the ranks tell each other once a step, united. Each fills in its own and leaves the rest zero.
     */
    uint64_t flags;  /* RECORD_* */
    double losses[]; /* [micro_batches] sums over the micro-batch's targets; then as many of each report's */
};

struct step_control_slot {
    struct step_control *host;
    char *room[BATCH_INPUTS]; /* (staged_most, input_bytes); NULL where calls have run when they return */
    int staged;               /* micro-batches of the step */
    void *event;
};

struct step_controls {
    const struct kernels *kernels;
    struct step_control *device;
    size_t bytes;     /* of a step_control */
    int batches_most; /* of a training step */
    int staged_most;
    size_t input_bytes[BATCH_INPUTS]; /* of a micro-batch on the host; 0: no plan loads it */
    struct step_control_slot slots[CONTROL_STEPS];
    int64_t begun, taken; /* steps */
};

/* Words of 8 bytes that the ranks unite, from `flags` on. */
int64_t step_control_record_words(const struct plan *plan);

/* The kernels are borrowed until close. */
MUST_CHECK status_t step_control_open(struct step_controls *c, const struct kernels *k, const struct plan *const *plans,
                                      int n, struct err *e);
void step_control_close(struct step_controls *c);
MUST_CHECK status_t step_control_set(struct step_controls *c, const struct decision *first, struct err *e);

/* The newest step's: until it is taken and CONTROL_STEPS more have begun. */
struct step_control_slot *step_control_slot(struct step_controls *c);

/* Fewer than CONTROL_STEPS are under way. */
struct step_control *step_control_begin(struct step_controls *c);
/* Points the batch at the step's own copy of it: an evaluation's, or that of a step that is run once more. They are
 * staged in turns of CONTROL_STAGED, each of which is waited for; a training step's stand in its loader's ring. */
MUST_CHECK status_t step_control_stage(struct step_controls *c, struct batch *batch, struct err *e);
MUST_CHECK status_t step_control_upload(struct step_controls *c, struct err *e);
MUST_CHECK status_t step_control_download(struct step_controls *c, const struct plan *plan, struct err *e);
MUST_CHECK status_t step_control_end(struct step_controls *c, struct err *e);
/* *ret is valid until the step after CONTROL_STEPS - 1 more begins. */
MUST_CHECK status_t step_control_take(struct step_controls *c, const struct step_control **ret, struct err *e);

#endif
