/* The learning rate of a step: linear warm-up from lr / (warmup + 1) as nanoGPT defines it; then constant; or down to
 * min_lr until the last step by half a cosine or a line; or constant and then a line over the last decay_steps (wsd).
 * Scaling multiplies lr and min_lr by global_batch / reference_batch (Goyal et al. 2017) or its root: by the batch,
 * never by the number of ranks. */
#ifndef EXECUTOR_ENGINE_RUN_LEARNING_RATE_H
#define EXECUTOR_ENGINE_RUN_LEARNING_RATE_H

#include "executor/engine/run/engine.h"

/* step counts from 0: the batches consumed before this one. */
double learning_rate(const struct engine_train *train, int64_t step);

#endif
