/* Marks steps and instructions for tools and for the step's profiler: a named range around each step and each
 * instruction of the compute queue (the kernel table's range_begin and range_end, if it has them), and times in
 * x->profiler (if it is not NULL). */
#ifndef ENGINE_RUN_INSTRUMENT_H
#define ENGINE_RUN_INSTRUMENT_H

#include "engine/run/execution.h"

void instrument_step_begin(const struct execution *x, const struct plan *plan);
void instrument_step_end(const struct execution *x);
/* Around the calls of instruction n of the compute queue. */
void instrument_instruction_begin(const struct execution *x, const struct plan *plan, int n);
void instrument_instruction_end(const struct execution *x, const struct plan *plan, int n);

#endif
