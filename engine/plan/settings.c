#include "engine/plan/settings.h"

#include <stddef.h>

const char *const PLAN_REDUCE_WORDS[] = {
    [PLAN_REDUCE_STEP] = "step", [PLAN_REDUCE_MICRO_BATCH] = "micro_batch", NULL
};

const char *const PLAN_RECOMPUTE_WORDS[] = { [RECOMPUTE_NONE] = "none",
                                             [RECOMPUTE_SELECTIVE] = "selective",
                                             [RECOMPUTE_BLOCK] = "block",
                                             [RECOMPUTE_AUTO] = "auto",
                                             NULL };
