#include "engine/run/learning_rate.h"

#include <math.h>

static double fraction(const struct rate_schedule *s, int64_t steps, int64_t step) {
    const int64_t begin = s->warmup_steps;
    return 0.5 * (1 + cos(M_PI * (double)(step - begin) / (double)(steps - begin)));
}

const struct rate_kind rate_cosine = { .name = "cosine", .fraction = fraction };
