/* Executes one instruction of the compute queue: the kernel calls for it, on the arena's memory. Every decision is
 * the plan's: these functions only look up addresses and call ops, kernels and the optimizer. */
#ifndef ENGINE_RUN_INSTRUCTIONS_H
#define ENGINE_RUN_INSTRUCTIONS_H

#include "engine/run/execution.h"

/* LOAD, FORWARD, RECOMPUTE, BACKWARD_INPUT, BACKWARD_WEIGHT, COPY_GRADIENT. */
MUST_CHECK status_t execute_op(struct execution *x, const struct plan *plan, const struct instruction *i,
                               struct err *e);
/* ADD, ADD_USE, NORM, DECIDE. */
MUST_CHECK status_t execute_gradient(struct execution *x, const struct plan *plan, const struct instruction *i,
                                     struct err *e);
/* STEP: the optimizer, batch statistics, averages of weights. */
MUST_CHECK status_t execute_step(struct execution *x, const struct plan *plan, const struct instruction *i,
                                 struct err *e);
/* STATISTICS. */
MUST_CHECK status_t execute_statistics(struct execution *x, const struct plan *plan, const struct instruction *i,
                                       struct err *e);
/* SWITCH_AVERAGES. */
MUST_CHECK status_t execute_switch_averages(struct execution *x, const struct plan *plan, const struct instruction *i,
                                            struct err *e);

/* The op that first wrote a value that is not finite, as a number: of two numbers, also of different ranks, the smaller
 * was computed first. CULPRIT_NONE is larger than all. */
#define CULPRIT_NONE UINT64_MAX
struct culprit {
    bool backward;
    bool weight; /* the gradient of its parameters, not that of its inputs; only if backward */
    int micro_batch;
    const char *op;
};
struct culprit culprit_decode(const struct graph *g, uint64_t number);

#endif
