/* Initial weights, from the counter-based generator: they depend on the seed and the parameter's number in the model,
 * not on who makes them, nor on how a parameter is cut into pieces. */
#ifndef EXECUTOR_ENGINE_RUN_INITIAL_H
#define EXECUTOR_ENGINE_RUN_INITIAL_H

#include "executor/engine/graph/graph.h"

/* data (count) = elements first .. first + count - 1 of the parameter (first a multiple of 4) as its init says; normal
 * numbers by Box and Muller. */
void initial_parameter(const struct parameter *p, int number, int64_t seed, int64_t first, int64_t count, float *data);

#endif
