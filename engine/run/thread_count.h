/* The number of threads that a model has enough work for. Starting and joining threads costs more than it saves if an
 * op takes only microseconds: on busy cores such a model took three to fifteen times as long on two threads. */
#ifndef ENGINE_RUN_THREAD_COUNT_H
#define ENGINE_RUN_THREAD_COUNT_H

#include "engine/graph/graph.h"

/* So many threads that each gets at least THREAD_FLOPS of an average op of a micro-batch (some tens of microseconds).
 * 1 .. LIMIT_CORES. */
enum { THREAD_FLOPS = 2000000 };
int thread_count_useful(const struct graph *g);

#endif
