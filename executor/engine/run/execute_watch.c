/* What a profile and tools are told of a step and of each instruction of the compute queue. */
#include "executor/engine/run/execute.h"

#include "executor/engine/run/label.h"
#include "executor/engine/run/profiler.h"

#include <stdio.h>

void execute_watch_step(const struct execution *x, const struct plan *plan) {
    char name[40] = "evaluation";
    if (!x->kernels->range_begin)
        return;
    if (plan->layout.kind == PLAN_TRAIN)
        snprintf(name, sizeof name, "step %lld", (long long)x->step + 1);
    x->kernels->range_begin(x->kernels, name);
}

void execute_watch_instruction(const struct execution *x, const struct plan *plan, int n) {
    char label[LABEL_BYTES];
    if (x->kernels->range_begin) {
        label_instruction(plan, &plan->queue[QUEUE_COMPUTE].items[n], label);
        x->kernels->range_begin(x->kernels, label);
    }
    if (x->profiler)
        profiler_enter(x->profiler, plan, n);
}

void execute_watched_instruction(const struct execution *x, const struct plan *plan, int n) {
    if (x->profiler)
        profiler_leave(x->profiler, plan, n);
    execute_watched(x);
}

void execute_watched(const struct execution *x) {
    if (x->kernels->range_end)
        x->kernels->range_end(x->kernels);
}
