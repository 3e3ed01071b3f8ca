/* Initial weights from the counter-based generator: element i of parameter number p is a function of (seed, p, i)
 * alone, so that any rank can make any part of them, in any order and on any number of threads. */
#ifndef EXECUTOR_ENGINE_RUN_INITIAL_H
#define EXECUTOR_ENGINE_RUN_INITIAL_H

#include "executor/engine/graph/graph.h"

/* data (elements of p) as p->init says. Normal numbers by Box and Muller (1958) from Philox4x32-10. */
void initial_parameter(const struct parameter *p, int number, int64_t seed, float *data);

#endif
