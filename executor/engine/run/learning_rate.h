/* The learning rate of a step, as nanoGPT defines it: linear warm-up from lr / (warmup + 1), then constant, or down to
 * min_lr by half a cosine or a line until the last step. */
#ifndef EXECUTOR_ENGINE_RUN_LEARNING_RATE_H
#define EXECUTOR_ENGINE_RUN_LEARNING_RATE_H

#include "executor/engine/run/engine.h"

/* step counts from 0: the batches consumed before this one. */
double learning_rate(const struct engine_train *train, int64_t step);

#endif
