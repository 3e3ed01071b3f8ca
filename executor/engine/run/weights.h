/* A rank's weights, filled in from somewhere: initial numbers, a checkpoint, another folder. Whatever the layout asks
 * for gets its numbers: whole parameters in the graph's type, own pieces, fp32 masters. */
#ifndef EXECUTOR_ENGINE_RUN_WEIGHTS_H
#define EXECUTOR_ENGINE_RUN_WEIGHTS_H

#include "executor/engine/run/execute.h"

/* data (count) = elements first .. first + count - 1 of this parameter; first is a multiple of PLAN_CHUNK. */
typedef status_t weights_source(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e);

/* Asks the source for every element that this rank holds, some of them twice. Each passes through a MiB of the host's
 * memory on its way to the device. */
MUST_CHECK status_t weights_fill(const struct execution *x, const struct plan *plan, weights_source *source, void *ctx,
                                 struct err *e);
/* The same for one array of floats in the arena. */
MUST_CHECK status_t weights_fill_state(const struct execution *x, float *to, weights_source *source, void *ctx,
                                       int parameter, int64_t first, int64_t count, struct err *e);
/* EMA = the weights, where the plan has one. */
MUST_CHECK status_t weights_start_average(const struct execution *x, const struct plan *plan, struct err *e);

/* fp32 state of a piece in the arena: the weight as the optimizer sees it, its states, its average; NULL = none. */
float *weights_master(const struct execution *x, const struct plan *plan, const struct plan_piece *p);
float *weights_state(const struct execution *x, const struct plan_piece *p, int state);
float *weights_average(const struct execution *x, const struct plan_piece *p);

#endif
