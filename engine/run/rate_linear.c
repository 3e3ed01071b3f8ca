#include "engine/run/learning_rate.h"

static double fraction(const struct rate_schedule *s, int64_t steps, int64_t step) {
    return rate_line(steps, s->warmup_steps, step);
}

const struct rate_kind rate_linear = { .name = "linear", .fraction = fraction };
