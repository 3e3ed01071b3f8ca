#include "base/clock.h"

#include <limits.h>
#include <stddef.h>

static const struct clock_source *source; /* NULL: the real clocks */

static int64_t read_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void clock_override(const struct clock_source *s) { source = s; }

int64_t clock_mono_ns(void) { return source ? source->mono_ns(source->ctx) : read_ns(CLOCK_MONOTONIC); }

int64_t clock_mono_ms(void) { return clock_mono_ns() / 1000000; }

int64_t clock_wall_us(void) { return source ? source->wall_us(source->ctx) : read_ns(CLOCK_REALTIME) / 1000; }

int deadline_poll_ms(deadline_ms_t deadline) {
    if (deadline == DEADLINE_NEVER)
        return -1;
    int64_t left = deadline - clock_mono_ms();
    return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

struct timespec deadline_timespec(deadline_ms_t deadline) {
    /* DEADLINE_NEVER becomes a century from now: pthread refuses a tv_sec that overflows. */
    int64_t ms = deadline == DEADLINE_NEVER ? clock_mono_ms() + INT64_C(3155760000000) : deadline;
    return (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
}
