/* What a profiler holds: for profiler.c, which notes it, and profiler_write.c, which tells it. */
#ifndef EXECUTOR_ENGINE_RUN_PROFILER_LANES_H
#define EXECUTOR_ENGINE_RUN_PROFILER_LANES_H

#include "executor/engine/run/profiler.h"

/* Beside those that others write to: the compute thread's calls, one for each event of PROFILER_COMPUTE, and where
 * steps begin. */
enum { CALLS_LANE = PROFILER_LANES, STEPS_LANE, LANES };

struct event {
    int64_t start, end;
    int64_t number; /* instruction, or step */
};

struct lane {
    struct event *events;
    int64_t n, room, dropped;
};

struct profiler {
    const struct plan *plan;
    const struct kernels *kernels;
    void **timers; /* [compute's n + 2]: as the step begins, before its first instruction, after each */
    int64_t called_ns;
    int64_t anchor_ns, error_ns; /* when the device came to the first timer; and the largest error of that so far */
    status_t status;             /* the first failure of a timer */
    struct err failure;
    struct lane lanes[LANES];
};

#endif
