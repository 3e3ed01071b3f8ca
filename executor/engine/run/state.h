/* What an engine holds, for the files of run/ only. */
#ifndef EXECUTOR_ENGINE_RUN_STATE_H
#define EXECUTOR_ENGINE_RUN_STATE_H

#include "executor/engine/checkpoint/writer.h"
#include "executor/engine/collective/collective.h"
#include "executor/engine/data/loader.h"
#include "executor/engine/run/engine.h"
#include "executor/engine/run/execute.h"
#include "executor/engine/run/snapshot.h"

#include <stdatomic.h>

struct engine {
    struct engine_config config;
    struct engine_hooks hooks;
    struct collective *collective;
    int rank, world_size;

    struct corpus *corpus;
    struct loader *loader;
    struct kernels *kernels;
    struct graph *graph;
    struct plan *train, *evaluate; /* evaluate: NULL without validation data */
    struct arena arena;
    struct channel *channel; /* NULL when alone */
    struct execution execution;
    int *micro_batches;        /* this rank's, in the plan's order */
    struct snapshot *snapshot; /* NULL when no checkpoints are written */
    char numerics_id[KERNELS_NUMERICS_ID_BYTES];

    int64_t updates;      /* applied steps */
    _Atomic int64_t step; /* batches consumed */
    atomic_bool stop;
    bool has_validation_loss;
    double validation_loss;
    int64_t data_wait_ns, communication_wait_ns; /* at the end of the step before */
    int statm_fd;
    char weights_sha256[ENGINE_SHA256_HEX];
};

void engine_progress(struct engine *engine);
void engine_notice(struct engine *engine, const char *kind, int64_t step, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* train.c: what `execute` asks for micro-batch k of the training or of the evaluation. */
status_t engine_load_train(void *engine, int k, int32_t *tokens, int32_t *targets, struct err *e);
status_t engine_load_validation(void *engine, int k, int32_t *tokens, int32_t *targets, struct err *e);

#endif
