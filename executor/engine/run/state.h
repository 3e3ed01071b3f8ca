/* What an engine holds: for the files of run/, and for tests that look inside. */
#ifndef EXECUTOR_ENGINE_RUN_STATE_H
#define EXECUTOR_ENGINE_RUN_STATE_H

#include "executor/engine/checkpoint/writer.h"
#include "executor/engine/collective/collective.h"
#include "executor/engine/data/loader.h"
#include "executor/engine/run/engine.h"
#include "executor/engine/run/execute.h"
#include "executor/engine/run/profiler.h"
#include "executor/engine/run/snapshot.h"

#include <stdatomic.h>

/* ", fast over 2", behind the kernels' id under `numerics: fast`, with its NUL. */
enum { ENGINE_FAST_NOTE_BYTES = 24 };

/* What a step's calls waited for, on the compute thread. */
struct step_waits {
    int64_t data_ns, communication_ns;
};

struct engine {
    struct engine_config config;
    struct engine_hooks hooks;
    struct collective *collective;
    int rank, world_size;

    struct source *source;
    struct batch evaluated; /* room for one micro-batch that is read beside the loader's order */
    struct loader *loader;  /* NULL where this rank's stage reads no batch inputs */
    struct kernels *kernels;
    struct graph *graph;
    struct plan *train, *evaluate; /* evaluate: NULL without validation data */
    struct arena arena;
    struct channel *channel;     /* NULL when alone */
    struct transfers *transfers; /* NULL with one stage */
    struct execution execution;
    struct snapshot *snapshot; /* NULL when no checkpoints are written */
    struct profiler *profiler; /* NULL without a profile */
    char numerics_id[KERNELS_NUMERICS_ID_BYTES + ENGINE_FAST_NOTE_BYTES];

    int64_t skipped;          /* steps that were consumed and not applied */
    _Atomic int64_t step;     /* batches consumed by steps that have ended */
    int64_t begun;            /* and by those that the device has been given, at most CONTROL_STEPS more */
    struct decision decision; /* as of `step` */
    int64_t begun_ns[CONTROL_STEPS], ended_ns;
    bool refusal_told; /* of a step that the device cannot capture */
    atomic_bool stop;
    bool has_validation_loss;
    double validation_loss, reports[GRAPH_REPORTS]; /* of the newest evaluation */
    char report_names[GRAPH_REPORTS][ENGINE_METRIC_NAME];
    struct engine_metric *metrics;          /* a step's row, with room for a norm of every parameter */
    char (*norm_names)[ENGINE_METRIC_NAME]; /* [n_parameters] */
    double *norms;                          /* [norm_chunks of a step] */
    struct step_waits waits[CONTROL_STEPS]; /* of the steps under way */
    int statm_fd;
    char weights_sha256[ENGINE_SHA256_HEX];
};

void engine_progress(struct engine *engine);
void engine_notice(struct engine *engine, const char *kind, int64_t step, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* prepare.c: everything up to the first step but the state. */
MUST_CHECK status_t engine_prepare(struct engine *engine, struct err *e);
MUST_CHECK status_t engine_open_loader(struct engine *engine, struct err *e); /* from engine->step on */

/* train.c: tells the device what the first step begins with; what `execute` asks for micro-batch k of the training or
 * of the evaluation. */
MUST_CHECK status_t engine_start(struct engine *engine, struct err *e);
status_t engine_load_train(void *engine, int k, struct batch *ret, struct err *e);
status_t engine_load_validation(void *engine, int k, struct batch *ret, struct err *e);

#endif
