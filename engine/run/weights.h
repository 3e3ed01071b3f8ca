/* Fills a rank's weights from a source: initial values, a checkpoint, a pretrained model. The source knows parameters
 * only; this module writes each value in every form that the layout holds: whole parameters in the graph's type, this
 * rank's shards, fp32 masters. */
#ifndef ENGINE_RUN_WEIGHTS_H
#define ENGINE_RUN_WEIGHTS_H

#include "engine/run/execution.h"

/* data (count) = elements first .. first + count - 1 of this parameter; first is a multiple of PLAN_CHUNK. */
typedef status_t weights_source(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e);

/* Asks the source for every element that this rank holds, for some of them twice. Values pass through a buffer of 1 MiB
 * on the host on their way to the device. */
MUST_CHECK status_t weights_fill(const struct execution *x, const struct plan *plan, weights_source *source, void *ctx,
                                 struct err *e);
/* The same for one array of floats in the arena. */
MUST_CHECK status_t weights_fill_state(const struct execution *x, float *to, weights_source *source, void *ctx,
                                       int parameter, int64_t first, int64_t count, struct err *e);
/* Sets the averages of weights to the weights, if the plan has averages. */
MUST_CHECK status_t weights_start_average(const struct execution *x, const struct plan *plan, struct err *e);

/* Addresses of a shard's fp32 state in the arena: the weight as the optimizer sees it, an optimizer state, the average;
 * NULL = none. */
float *weights_master(const struct execution *x, const struct plan *plan, const struct plan_shard *p);
float *weights_state(const struct execution *x, const struct plan_shard *p, int state);
float *weights_average(const struct execution *x, const struct plan_shard *p);

#endif
