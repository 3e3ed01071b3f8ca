#include "engine/run/learning_rate.h"

const struct rate_kind rate_constant = { .name = "constant" };
