/* What an engine holds. For the files of this folder, and for tests that look inside. */
#ifndef ENGINE_RUN_ENGINE_STATE_H
#define ENGINE_RUN_ENGINE_STATE_H

#include "base/sha256.h"
#include "engine/run/engine_config.h"
#include "engine/run/execution.h"

#include <stdatomic.h>

struct loader;
struct profiler;
struct snapshot;

/* ", fast over 2", appended to the kernels' id under `numerics: fast`, with its NUL. */
enum { ENGINE_FAST_NOTE_BYTES = 24 };

/* An evaluation's means over the samples, of the weights or of their averages. */
struct engine_evaluation {
    double loss, reports[GRAPH_REPORTS];
    double mixed[DATA_SOURCES_MAX]; /* the losses of a mixture's sources that have validation samples */
};

/* The plans that an engine executes, at most. */
enum { ENGINE_PLANS = 3 };

/* As of the newest step that has ended: what a checkpoint of it stores beside the tensors. */
struct engine_training {
    _Atomic int64_t step; /* batches consumed */
    int64_t skipped;      /* steps that were consumed and not applied */
    struct decision decision;
    bool evaluated;
    struct engine_evaluation weights, averages; /* of the newest evaluation; averages: if engine.averages is set */
    char weights_sha256[ENGINE_SHA256_HEX];     /* of the final checkpoint */
};

/* Where this run began: its first step, and the samples that were consumed before. A fork may have another global batch
 * than the job of its checkpoint. */
struct engine_first {
    int64_t step, sample;
};

/* What the compute thread waited for while it issued a step's calls. */
struct step_waits {
    int64_t data_ns, data_read_ns, communication_ns;
};

/* Steps that were issued to the device and have not ended, at most CONTROL_STEPS. Arrays are indexed by step modulo
 * CONTROL_STEPS. */
struct engine_in_flight {
    int64_t begun; /* steps issued, training.step or more */
    int64_t begun_ns[CONTROL_STEPS];
    struct step_waits waits[CONTROL_STEPS];
    int64_t last_end_ns;
};

struct engine_threads {
    _Atomic int requested; /* for the next step */
    int max;
};

/* Names of the metrics of a mixture's source. */
struct engine_mixed_names {
    char samples[ENGINE_METRIC_NAME], loss[ENGINE_METRIC_NAME], average_loss[ENGINE_METRIC_NAME];
};

/* Buffers of the metrics of a step. */
struct engine_metrics {
    struct engine_metric *row;                            /* with capacity for a norm of every parameter */
    char (*norm_names)[ENGINE_METRIC_NAME];               /* [n_parameters] */
    double *norms;                                        /* [norm_chunks of a step] */
    char report_names[GRAPH_REPORTS][ENGINE_METRIC_NAME]; /* of the weights; of their averages: */
    char average_names[GRAPH_REPORTS][ENGINE_METRIC_NAME];
    struct engine_mixed_names *mixed_names; /* [sources of a mixture] */
    int statm_fd;                           /* /proc/self/statm; -1 = none */
};

struct engine {
    struct engine_config config;
    struct engine_hooks hooks;
    struct collective *collective;
    int rank, world_size;

    /* Opened once, before the first step. */
    struct source *source;
    struct batch scratch_batch; /* one micro-batch that is read outside the loader's order */
    struct loader *loader;      /* NULL if this rank's stage reads no batch inputs */
    struct kernels *kernels;
    struct graph *graph;
    struct plan *train, *evaluate;                  /* evaluate: NULL without validation data */
    struct plan *averages;                          /* PLAN_AVERAGE; NULL if averages are not evaluated */
    uint8_t plan_digest[PLAN_SAMPLE][SHA256_BYTES]; /* by kind; zeros without a plan. The same on all ranks */
    size_t host_bytes;                              /* planned: of the host's memory, on a CPU with the arena */
    struct arena arena;
    struct data_queue *data_queue; /* NULL when the world size is 1 */
    struct transfers *transfers;   /* NULL with one stage */
    struct execution execution;
    struct snapshot *snapshot; /* NULL when no checkpoints are written */
    struct profiler *profiler; /* NULL without a profile */
    char numerics_id[KERNELS_NUMERICS_ID_BYTES + ENGINE_FAST_NOTE_BYTES];

    struct engine_first first;
    struct engine_training training;
    struct engine_in_flight in_flight;
    struct engine_threads threads;
    struct engine_metrics metrics;
    atomic_bool stop;
    bool refusal_reported; /* that the device cannot capture a step */
};

/* Steps that have ended. Any thread. */
int64_t engine_steps_done(const struct engine *engine);

/* The number of the first sample of a step (0-based) of this run. */
int64_t engine_first_sample(const struct engine *engine, int64_t step);

/* Plans that this engine executes: the training plan, then those of evaluations, if there are any. Returns how many. */
int engine_plans(const struct engine *engine, const struct plan *ret[ENGINE_PLANS]);

/* The validation loss by which checkpoints are ranked: that of the averages if they are evaluated. */
double engine_validation_loss(const struct engine *engine);

/* Call the hooks of the same name, if they are set. */
void engine_progress(struct engine *engine);
void engine_notice(struct engine *engine, const char *kind, int64_t step, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
