/* Time, in one place, so that tests can replace it and units are never guessed.
 *
 *   clock_mono_ms / clock_mono_ns   monotonic, for durations, deadlines and leases; no relation to the calendar
 *   clock_wall_us                   microseconds since 1970 UTC, for users and for the database
 *
 * clock_override puts another source under all three, for tests of leases and backoff; NULL restores the real one. It
 * is process-wide and is set before threads start. Everything else is thread-safe. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

int64_t clock_mono_ns(void);
int64_t clock_mono_ms(void);
int64_t clock_wall_us(void);

struct clock_source {
    int64_t (*mono_ns)(void *ctx);
    int64_t (*wall_us)(void *ctx);
    void *ctx;
};
void clock_override(const struct clock_source *source);

/* A moment on the monotonic clock. INT64_MAX is "never". */
typedef int64_t deadline_ms_t;
#define DEADLINE_NEVER INT64_MAX
static inline deadline_ms_t deadline_in(int64_t ms) { return clock_mono_ms() + ms; }

/* Milliseconds left, 0 when over, -1 for never: as for poll(2). */
int deadline_poll_ms(deadline_ms_t deadline);

/* An absolute CLOCK_MONOTONIC time for pthread_cond_clockwait and friends. */
struct timespec deadline_timespec(deadline_ms_t deadline);

#ifdef __cplusplus
}
#endif

#endif
