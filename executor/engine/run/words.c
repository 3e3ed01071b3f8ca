#include "executor/engine/run/engine.h"

const char *const ENGINE_NUMERICS_WORDS[] = { [ENGINE_NUMERICS_REPRODUCIBLE] = "reproducible",
                                              [ENGINE_NUMERICS_STRICT] = "strict",
                                              [ENGINE_NUMERICS_FAST] = "fast",
                                              NULL };

const char *const ENGINE_PRECISION_WORDS[] = {
    [ENGINE_FP32] = "fp32", [ENGINE_BF16] = "bf16", [ENGINE_FP16] = "fp16", NULL
};
