/* A learning rate that test_new_kinds.py adds to a copy of the tree: it falls with the root of the step. */
#include "engine/run/learning_rate.h"

#include <math.h>

static double fraction(const struct rate_schedule *s, int64_t steps, int64_t step) {
    (void)steps;
    return 1 / sqrt((double)(step - s->warmup_steps + 1));
}

const struct rate_kind rate_root = { .name = "root", .fraction = fraction };
