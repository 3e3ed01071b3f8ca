/* Initial weights, from the counter-based generator. They depend on the seed, the parameter's number in the model and
 * the element's index only: every layout and every number of threads gets the same values. */
#ifndef ENGINE_RUN_INITIAL_H
#define ENGINE_RUN_INITIAL_H

#include "engine/graph/graph.h"

/* data (count) = elements first .. first + count - 1 of the parameter, as its init field says. first must be a multiple
 * of 4. Normal numbers are made by the Box-Muller transform. */
void initial_parameter(const struct parameter *p, int number, int64_t seed, int64_t first, int64_t count, float *data);

#endif
