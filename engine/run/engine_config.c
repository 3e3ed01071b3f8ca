#include "engine/run/engine_config.h"

const char *const ENGINE_NUMERICS_NAMES[] = { [ENGINE_NUMERICS_REPRODUCIBLE] = "reproducible",
                                              [ENGINE_NUMERICS_STRICT] = "strict",
                                              [ENGINE_NUMERICS_FAST] = "fast",
                                              NULL };

const char *const ENGINE_PRECISION_NAMES[] = {
    [ENGINE_FP32] = "fp32", [ENGINE_BF16] = "bf16", [ENGINE_FP16] = "fp16", NULL
};

const char *const ENGINE_CHANGED_DATA_NAMES[] = {
    [ENGINE_DATA_REFUSE] = "refuse", [ENGINE_DATA_CONTINUE] = "continue", [ENGINE_DATA_RESTART] = "restart", NULL
};

int engine_degree(int n) { return n > 1 ? n : 1; }

int engine_ranks(const struct engine_layout *l) { return engine_degree(l->data) * engine_degree(l->pipeline); }
