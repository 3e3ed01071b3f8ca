#include "engine/run/learning_rate.h"

static double fraction(const struct rate_schedule *s, int64_t steps, int64_t step) {
    const int64_t stable = steps - 1 - s->decay_steps;
    if (s->decay_steps <= 0)
        return 1;
    return rate_line(steps, stable > s->warmup_steps ? stable : s->warmup_steps, step);
}

const struct rate_kind rate_wsd = { .name = "wsd", .fraction = fraction };
