/* Durations, counted by size: for Prometheus. Any thread may add and read; a read during an addition may miss it. */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum { HISTOGRAM_BOUNDS_MAX = 15 };

/* Static or zeroed memory with `bounds` and `n_bounds` set is an empty histogram. */
struct histogram {
    const double *bounds; /* [n_bounds] seconds, ascending; static storage */
    int n_bounds;         /* at most HISTOGRAM_BOUNDS_MAX */
    /* [n_bounds + 1] number i: above bound i - 1 and at most bound i; the last one: above all bounds. */
    _Atomic int64_t counts[HISTOGRAM_BOUNDS_MAX + 1];
    _Atomic int64_t sum_ns;
};

/* Bounds for calls, statements and turns: 250 µs to 30 s. */
#define HISTOGRAM_CALL_BOUNDS 15
extern const double histogram_call_bounds[HISTOGRAM_CALL_BOUNDS];
/* Bounds for waits: 1 s to a week. */
#define HISTOGRAM_WAIT_BOUNDS 12
extern const double histogram_wait_bounds[HISTOGRAM_WAIT_BOUNDS];

#define HISTOGRAM_OF_CALLS                                                                                             \
    { .bounds = histogram_call_bounds, .n_bounds = HISTOGRAM_CALL_BOUNDS }
#define HISTOGRAM_OF_WAITS                                                                                             \
    { .bounds = histogram_wait_bounds, .n_bounds = HISTOGRAM_WAIT_BOUNDS }

/* A negative duration, which a clock that was set back gives, counts as 0. */
void histogram_add(struct histogram *h, int64_t ns);

#endif
