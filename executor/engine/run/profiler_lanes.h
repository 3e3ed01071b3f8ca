/* What a profiler holds: for profiler.c, which notes it, and profiler_write.c, _table.c and _trace.c,
 * which tell it. */
#ifndef EXECUTOR_ENGINE_RUN_PROFILER_LANES_H
#define EXECUTOR_ENGINE_RUN_PROFILER_LANES_H

#include "executor/engine/run/profiler.h"
#include "kernels/trace.h"

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
    const struct kernels_trace *tracer; /* NULL: the device has none */
    struct trace *trace;                /* its marks are indices of PROFILER_COMPUTE; NULL: none, or it failed; why: */
    struct err untraced;
};

/* The events of a lane stand in the trace; on the CPU the calls are the compute. */
static inline bool lane_is_told(const struct profiler *p, int lane) {
    return lane != CALLS_LANE || p->kernels->deferred;
}

extern const char *const PROFILER_LANE_NAME[LANES];

MUST_CHECK status_t profiler_trace(const struct profiler *p, int rank, struct bytes *ret, struct err *e);

#endif
