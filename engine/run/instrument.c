#include "engine/run/instrument.h"

#include "engine/run/label.h"
#include "engine/run/profiler.h"

#include <stdio.h>

void instrument_step_begin(const struct execution *x, const struct plan *plan) {
    char name[40] = "evaluation"; /* or weights and averages that change places for one */
    if (!x->kernels->range_begin)
        return;
    if (plan->layout.kind == PLAN_TRAIN)
        snprintf(name, sizeof name, "step %lld", (long long)x->step + 1);
    x->kernels->range_begin(x->kernels, name);
}

void instrument_instruction_begin(const struct execution *x, const struct plan *plan, int n) {
    char label[LABEL_BYTES];
    if (x->kernels->range_begin) {
        label_instruction(plan, &plan->queue[QUEUE_COMPUTE].items[n], label);
        x->kernels->range_begin(x->kernels, label);
    }
    if (x->profiler)
        profiler_enter(x->profiler, plan, n);
}

void instrument_instruction_end(const struct execution *x, const struct plan *plan, int n) {
    if (x->profiler)
        profiler_leave(x->profiler, plan, n);
    if (x->kernels->range_end)
        x->kernels->range_end(x->kernels);
}

void instrument_step_end(const struct execution *x) {
    if (x->kernels->range_end)
        x->kernels->range_end(x->kernels);
}
