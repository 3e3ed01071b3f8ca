/* What a profiler holds: profiler.c records it; profiler_write.c, _table.c and _trace.c print it. */
#ifndef ENGINE_RUN_PROFILER_STATE_H
#define ENGINE_RUN_PROFILER_STATE_H

#include "engine/run/profiler.h"
#include "kernels/trace.h"

/* Two more tracks than enum profiler_track: call times, one for each event of PROFILER_COMPUTE, and the begin of steps.
 */
enum { CALLS_TRACK = PROFILER_TRACKS, STEPS_TRACK, TRACKS };

struct event {
    int64_t start, end;
    int64_t number; /* instruction, or step */
};

struct track {
    struct event *events;
    int64_t n, capacity, dropped;
};

struct profiler {
    const struct plan *plan;
    const struct kernels *kernels;
    void **timers; /* [compute instructions + 2]: at the begin of a step, before the first instruction, after each */
    int64_t called_ns;
    int64_t anchor_ns, error_ns; /* when the device reached the first timer; the largest error of that so far */
    status_t status;             /* the first failure of a timer */
    struct err failure;
    struct track tracks[TRACKS];
    const struct kernels_trace *tracer; /* NULL: the device has none */
    struct trace *trace;                /* its marks are indices of PROFILER_COMPUTE; NULL: none, or failed; why: */
    struct err untraced;
};

/* Whether a track is printed: on the CPU call times equal device times. */
static inline bool track_is_printed(const struct profiler *p, int track) {
    return track != CALLS_TRACK || p->kernels->deferred;
}

extern const char *const PROFILER_TRACK_NAME[TRACKS];

MUST_CHECK status_t profiler_trace(const struct profiler *p, int rank, struct bytes *ret, struct err *e);

#endif
