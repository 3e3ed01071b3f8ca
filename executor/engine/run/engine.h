/* One rank's training, from a resolved configuration to its last step. This is all that a program needs to train: fill
 * a configuration, open, run, close.
 *
 *     struct engine_config config = { .model = { .family = MODEL_GPT, .gpt = { .layers = 4, ... } }, ... };
 *     TRY(engine_open(&config, collective, &hooks, &engine, e));     // plans, allocates, loads: the rank has joined
 *     status_t st = engine_run(engine, &outcome, e);                 // all steps; outcome is set on failure too
 *     engine = engine_close(engine);
 *
 * The engine knows no jobs, pipes or protobuf, opens no socket (the collective is handed in) and never logs or exits.
 *
 * Threads: open, run and close belong to one thread, the compute thread. engine_stop_request and
 * engine_checkpoint_committed may be called from any thread between open and close. Hooks are called from the compute
 * thread, `shard` and `notice` also from the checkpoint writer's thread. A hook that blocks stops the step loop: that
 * is how a full spool holds training back.
 *
 * Memory: everything is allocated in engine_open; the step loop allocates nothing. */
#ifndef EXECUTOR_ENGINE_RUN_ENGINE_H
#define EXECUTOR_ENGINE_RUN_ENGINE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/collective/collective.h"
#include "executor/engine/data/source.h"
#include "executor/engine/model/model.h"
#include "executor/engine/optimizer/optimizer.h"
#include "executor/engine/plan/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;

enum { ENGINE_SHA256_HEX = 65, ENGINE_METRIC_NAME = 80, ENGINE_METRICS = 24 };

enum engine_schedule {
    ENGINE_SCHEDULE_CONSTANT,
    ENGINE_SCHEDULE_COSINE,
    ENGINE_SCHEDULE_LINEAR,
    ENGINE_SCHEDULE_WSD, /* warm-up, stable, decay (Hu et al. 2024, MiniCPM): constant, then a line over decay_steps */
};
enum engine_rate_scaling { ENGINE_RATE_AS_IT_IS, ENGINE_RATE_LINEAR, ENGINE_RATE_SQRT };
enum engine_numerics { ENGINE_NUMERICS_REPRODUCIBLE, ENGINE_NUMERICS_STRICT, ENGINE_NUMERICS_FAST };
enum engine_precision { ENGINE_FP32, ENGINE_BF16, ENGINE_FP16 };
/* The words for them in a spec and a checkpoint's layout; NULL follows the last. */
extern const char *const ENGINE_NUMERICS_WORDS[], *const ENGINE_PRECISION_WORDS[];

struct engine_train {
    int64_t steps;
    int global_batch; /* samples a step over all ranks */
    int micro_batch;  /* samples a forward/backward; divides global_batch; 0 = auto: engine_resolve chooses */
    int lanes; /* power of two dividing global_batch / micro_batch; the data degree divides it; 0 = the largest <= 8 */
    enum plan_reduce reduce;
    enum engine_numerics numerics;
    enum engine_precision precision; /* of weights and activations; masters, gradients and states are fp32 */
    enum plan_recompute recompute;
    int64_t seed;
    double clip_norm;  /* of all gradients together; 0 = none */
    double clip_value; /* each gradient into [-v, v], after clip_norm's scale; 0 = none */
    struct optimizer_config optimizer;
    struct {
        enum engine_schedule kind;
        int64_t warmup_steps;
        int64_t decay_steps; /* WSD: the last ones */
        double min_lr;
    } schedule;
    struct {
        enum engine_rate_scaling kind; /* lr times global_batch / reference_batch, or its root; min_lr too */
        int reference_batch;
    } rate_scaling;
    struct {                 /* fp16 only */
        double initial;      /* a power of two */
        int growth_interval; /* steps without overflow until it doubles */
    } loss_scale;
    double ema_decay; /* a second set of weights, average = decay average + (1 - decay) weights; 0 = none */
    struct {
        double z_score; /* a step whose gradient norm lies further above the mean than this many deviations is skipped;
                           0 = none */
        int window;     /* steps that mean and deviation are over, at least 2 */
    } skip_spikes;
    struct {
        int64_t every; /* steps; 0 = only after the last step */
        int batches;   /* of global_batch samples each */
    } eval;
    const char *init_from; /* weights alone: a checkpoint's step folder, or a folder as Hugging Face has them; NULL */
};

/* Which rank does what. Rank = stage * data + its number among the ranks of its stage. 0 in data, pipeline or
 * virtual_stages is 1. */
struct engine_layout {
    int data;     /* ranks that share a stage's micro-batches: a power of two dividing lanes */
    int pipeline; /* stages */
    int zero;     /* 0; sharded among the data ranks: 1 optimizer states, 2 and gradients, 3 and parameters */
    enum plan_schedule_kind schedule;
    int virtual_stages; /* pieces of the model that a rank holds; more than one with INTERLEAVED */
};

int engine_ranks(const struct engine_layout *l); /* data x pipeline */

struct engine_checkpoints {
    const char *directory;        /* step folders are made below it; NULL = none are written */
    int64_t every;                /* steps; 0 = only the final one */
    const char *resume_directory; /* a step folder to start from; NULL = from the start */
};

/* Steps from .. to (counted from 1; 0 = no profile) are timed instruction by instruction; after the last one each rank
 * writes rank-<r>.txt, a table of the most expensive operations, and rank-<r>.json, a trace for Perfetto. */
struct engine_profile {
    int64_t from, to;
    const char *directory; /* made when missing */
};

/* All strings are borrowed until engine_close. */
struct engine_config {
    struct model_config model;
    struct data_config data;
    struct engine_train train;
    struct engine_layout layout;
    struct engine_checkpoints checkpoint;
    struct engine_profile profile;
    int64_t gradients_every;         /* steps between metrics grad_norm/<parameter> for each parameter; 0 = never */
    const char *device;              /* "cpu"; "cuda" or "cuda:N": the first or N-th of this process's */
    struct collective_tuning tuning; /* on cuda: of NCCL */
    int threads;                     /* compute threads of this rank, >= 1 */
    int64_t bucket_bytes;            /* of one overlapped reduction; 0 = the default. Changes no bits */
    int64_t memory_bytes;  /* what a rank's plan may take; 0 = no limit. engine_resolve and engine_open keep to it */
    double peak_flops;     /* of this rank's device in this precision, for `mfu`; 0: the kernels', else it is omitted */
    const char *spec_json; /* the resolved spec as JSON text, stored in the manifest as it is; NULL = "{}" */
};

struct engine_metric {
    const char *name; /* valid during the call; less than ENGINE_METRIC_NAME bytes */
    double value;
};

/* What a rank wrote for one checkpoint: every field of a ShardReport. Strings are valid during the call. */
struct engine_shard {
    int64_t step;
    int rank, world_size;
    const char *directory, *file; /* the step folder, and the file's name in it */
    int64_t bytes;
    const char *sha256;         /* of the file, hex */
    const char *weights_sha256; /* of the whole model, on the rank that knows it; else "" */
    bool has_validation_loss;
    double validation_loss; /* the newest one known */
    bool final;             /* the state after the last step */
};

/* Any pointer may be NULL. */
struct engine_hooks {
    void *ctx;
    /* At the end of engine_open: state is loaded or initialised and all ranks have met. */
    void (*joined)(void *ctx, int64_t from_step, const char *numerics_id);
    /* After each step, in order: one call with the gang's values (per_rank false, rank 0 only), one with this rank's
     * own. On cuda the next step may have begun. */
    void (*metrics)(void *ctx, int64_t step, bool per_rank, const struct engine_metric *metrics, int n);
    /* kind is snake_case: checkpoint_skipped, checkpoint_failed, numerics_changed, optimizer_started, average_started,
     * step_skipped (an overflow in fp16, or a spike), graph_refused (a device that runs steps call by call),
     * mfu_unknown (a device of which nobody knows what it could do), snapshot_slow (a system that pins too little
     * memory for snapshots). */
    void (*notice)(void *ctx, const char *kind, const char *message, int64_t step);
    void (*shard)(void *ctx, const struct engine_shard *shard);
    /* The compute thread got on: several times a step, and while it loads. Cheap; for hang detection. */
    void (*progress)(void *ctx);
};

/* Fills in what the configuration leaves to the planner: micro_batch 0, lanes 0, recompute AUTO. Every rank reads the
 * data; rank 0 plans for the most threads and the least memory_bytes that any has, and tells all others, who have left
 * the same open; after it the configuration is complete, and decides the bits. A run that goes on from a checkpoint
 * keeps its micro_batch and lanes, however much memory there is now; recompute, which changes no bits, is then what
 * fits. Every rank of the collective calls it, before engine_open, and gets the same error. Of the hooks, which may be
 * NULL, `progress` is called. INVALID_ARGUMENT: `auto` without memory_bytes, or nothing fits (the sentence says what
 * would); those of the data, DATA_LOSS of the checkpoint's manifest. */
MUST_CHECK status_t engine_resolve(struct engine_config *config, struct collective *collective,
                                   const struct engine_hooks *hooks, struct err *e);

/* How a run ended. On failure the status and its sentence say more. */
enum engine_outcome {
    ENGINE_FINISHED,         /* all steps done, the final checkpoint written */
    ENGINE_STOPPED,          /* as requested, at a step boundary that all ranks agreed on; a checkpoint was written */
    ENGINE_BAD_SPEC,         /* the configuration or the data cannot be trained */
    ENGINE_PEER_LOST,        /* another rank went away */
    ENGINE_CHECKPOINT_BAD,   /* the resume checkpoint failed its digests */
    ENGINE_CHECKPOINT_WRITE, /* the final checkpoint could not be written */
    ENGINE_NUMERIC,          /* NaN or infinite loss or gradient norm */
    ENGINE_INTERNAL,
};

/* What a failed engine_open (or engine_run) means: INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, UNIMPLEMENTED ->
 * BAD_SPEC; UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED -> PEER_LOST; DATA_LOSS -> CHECKPOINT_BAD; OUT_OF_RANGE ->
 * NUMERIC; else INTERNAL. */
enum engine_outcome engine_outcome_of(status_t st);

/* Reads the data, builds graph and plan, verifies the plan, allocates the arena, loads or initialises the state, and
 * meets the other ranks. The collective is borrowed until engine_close and must not be used by the caller meanwhile,
 * except collective_abort. Errors: as engine_outcome_of says; INVALID_ARGUMENT names the field of the spec. */
MUST_CHECK status_t engine_open(const struct engine_config *config, struct collective *collective,
                                const struct engine_hooks *hooks, struct engine **ret, struct err *e);

/* Trains from the loaded step to the last one. *ret is always set. After a failure only engine_close is allowed. */
MUST_CHECK status_t engine_run(struct engine *engine, enum engine_outcome *ret, struct err *e);

/* Ends the run at the next step boundary that all ranks agree on, with a checkpoint. Any thread. */
void engine_stop_request(struct engine *engine);

/* The checkpoint of this step became durable for the gang. With two uncommitted ones, further checkpoints are skipped.
 * Any thread. */
void engine_checkpoint_committed(struct engine *engine, int64_t step);

/* Steps done so far. Any thread. */
int64_t engine_step(const struct engine *engine);

/* What the plan takes of the device's memory, to the byte. */
size_t engine_arena_bytes(const struct engine *engine);

/* Of the state after the last step, hex, on every rank; "" before engine_run ended with FINISHED or STOPPED, and where
 * no checkpoints are written (the writer computes it). Valid until engine_close. */
const char *engine_weights_sha256(const struct engine *engine);

/* The plan of this rank as text, and bytes by family. Free the text with free(). */
MUST_CHECK status_t engine_plan_text(const struct engine *engine, char **ret, struct err *e);

struct engine *engine_close(struct engine *engine);
CLEANUP_DEFINE(struct engine *, engine_close)

/* Text from a checkpoint, piece by piece (a piece is whole UTF-8 characters, NUL-terminated, valid during the call).
 * write returns false to stop early. temperature 0 = always the likeliest token. The same seed gives the same text.
 * Errors: NOT_FOUND and DATA_LOSS of the checkpoint; INVALID_ARGUMENT for a prompt that the tokenizer does not know. */
struct engine_sample_request {
    const char *directory; /* a checkpoint's step folder */
    const char *prompt;    /* may be "": starts from a newline */
    int tokens;
    double temperature;
    int64_t seed;
    int threads;
    bool (*write)(void *ctx, const char *piece);
    void *ctx;
};
MUST_CHECK status_t engine_sample(const struct engine_sample_request *request, struct err *e);

#endif
