/* What a program hands to the engine: the resolved configuration of one rank, and the hooks that the engine calls.
 * Plain data; engine.h has the functions. */
#ifndef ENGINE_RUN_ENGINE_CONFIG_H
#define ENGINE_RUN_ENGINE_CONFIG_H

#include "engine/collective/collective.h"
#include "engine/data/source.h"
#include "engine/model/model.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/schedule_kind.h"
#include "engine/plan/settings.h"
#include "engine/run/learning_rate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ENGINE_SHA256_HEX = 65, ENGINE_METRIC_NAME = 80, ENGINE_METRICS = 24 };

enum engine_rate_scaling { ENGINE_RATE_UNSCALED, ENGINE_RATE_LINEAR, ENGINE_RATE_SQRT };
enum engine_numerics { ENGINE_NUMERICS_REPRODUCIBLE, ENGINE_NUMERICS_STRICT, ENGINE_NUMERICS_FAST };
enum engine_precision { ENGINE_FP32, ENGINE_BF16, ENGINE_FP16 };
/* What a run does if its data are not those of the checkpoint that it begins with. */
enum engine_changed_data {
    ENGINE_DATA_REFUSE,
    ENGINE_DATA_CONTINUE, /* the samples are numbered on */
    ENGINE_DATA_RESTART,  /* the samples are numbered from 0 */
};
/* Their names in a spec and in a checkpoint's layout, indexed by the enum; NULL follows the last. */
extern const char *const ENGINE_NUMERICS_NAMES[], *const ENGINE_PRECISION_NAMES[], *const ENGINE_CHANGED_DATA_NAMES[];

struct engine_train {
    int64_t steps;
    int global_batch; /* samples of a step over all ranks */
    int micro_batch;  /* samples of one forward pass; divides global_batch; 0 = auto: engine_resolve chooses */
    int lanes;        /* power of two dividing global_batch / micro_batch; the data degree divides it; 0 = plan_lanes */
    enum plan_reduce reduce;
    enum engine_numerics numerics;
    enum engine_precision precision; /* of weights and activations; masters, gradients and states are fp32 */
    enum plan_recompute recompute;
    int64_t seed;
    double clip_norm;  /* of all gradients together; 0 = none */
    double clip_value; /* each gradient into [-v, v], after clip_norm's scale; 0 = none */
    struct optimizer_config optimizer;
    struct rate_schedule schedule;
    struct {
        enum engine_rate_scaling kind; /* lr and min_lr times global_batch / reference_batch, or times its root */
        int reference_batch;
    } rate_scaling;
    struct {                 /* fp16 only */
        double initial;      /* a power of two */
        int growth_interval; /* steps without overflow until it doubles */
    } loss_scale;
    struct {
        double decay;  /* a second set of weights, average = decay average + (1 - decay) weights; 0 = none */
        bool evaluate; /* each evaluation evaluates the averages, too, and their loss ranks checkpoints */
    } ema;
    struct {
        double z_score; /* a step is skipped if its gradient norm is more than this many deviations above the mean;
                           0 = none */
        int window;     /* steps that mean and deviation are computed over, at least 2 */
    } skip_spikes;
    int max_not_finite; /* steps in a row that are skipped because their loss or gradient is not finite; the next one
                           ends the run */
    struct {
        int64_t every; /* steps; 0 = only after the last step */
        int batches;   /* of global_batch samples each, at most; 0 = the whole validation set */
    } eval;
    const char *init_from; /* weights to start from: a checkpoint's step folder or a Hugging Face folder; NULL: none */
    const struct roots *init_roots; /* that init_from must lie below (base/roots.h); NULL: anywhere */
    bool init_checkpoint;           /* init_from is known to have been a complete checkpoint: a failure to read it is
                             ENGINE_CHECKPOINT_UNREADABLE, not ENGINE_HOST_FAULT */
};

/* Which rank does what. Rank = stage * data + its number among the ranks of its stage. 0 in data, pipeline or
 * virtual_stages means 1. */
struct engine_layout {
    int data;     /* ranks that share a stage's micro-batches: a power of two dividing lanes */
    int pipeline; /* stages */
    int zero;     /* 0; sharded among the data ranks: 1 optimizer states, 2 also gradients, 3 also parameters */
    const struct schedule_kind *schedule; /* NULL: 1f1b */
    int virtual_stages;                   /* separate runs of blocks on each rank; more than one with INTERLEAVED */
};

int engine_ranks(const struct engine_layout *l); /* data x pipeline */
/* 0 and 1 are 1. */
int engine_degree(int n);

struct engine_checkpoints {
    const char *directory;                 /* step folders are made in it; NULL = no checkpoints are written */
    int64_t every;                         /* steps; 0 = only the final one */
    const char *resume_directory;          /* a step folder to resume from; NULL = start anew */
    const struct roots *roots;             /* that both must lie below (base/roots.h); NULL: anywhere */
    bool forked;                           /* resume_directory is another job's */
    enum engine_changed_data changed_data; /* if forked; else changed data are refused */
};

/* Steps from .. to (counted from 1; 0 = no profile) are timed instruction by instruction. After the last one each rank
 * writes rank-<r>.txt, a table of the most expensive operations, and rank-<r>.json, a trace for Perfetto. */
struct engine_profile {
    int64_t from, to;
    const char *directory; /* made if it is missing */
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
    const char *device;              /* "cpu"; "cuda" or "cuda:N": the first or N-th device of this process */
    struct collective_tuning tuning; /* on cuda: of NCCL */
    int threads;                     /* compute threads at the start, >= 1 */
    int max_threads; /* upper limit of engine_set_threads; the plan's workspace is sized for it; 0 = threads */
    const struct token_cache *token_cache; /* of texts (data/token_cache.h); NULL: tokens are in memory. Changes no bits
                                            */
    int workers, prefetch; /* of the loader: its threads, and the batches that it makes ahead; 0 = loader.h decides.
                            * They change no bits */
    bool threads_by_work;  /* use no more threads than the model's ops have work for (thread_count.h) */
    int64_t bucket_bytes;  /* of one overlapped reduction; 0 = chosen by the timeline. Changes no bits */
    int64_t memory_bytes;  /* limit of a rank's memory: on a CPU of all of it, else of the arena; 0 = none.
                            * engine_resolve and engine_open respect it */
    size_t program_bytes;  /* of host memory that the program itself occupies (host_memory.h, HOST_PROGRAM) */
    size_t opening_bytes;  /* that rank 0 of a job on CPUs needs beside it, and has freed before engine_open */
    double peak_flops;     /* of this rank's device in this precision, for `mfu`: the highest rate known, with `threads`
                            * on a CPU. A faster step raises it. 0: the kernels', else no mfu */
    const char *spec_json; /* the resolved spec as JSON text, stored in the manifest unchanged; NULL = "{}" */
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
    double validation_loss; /* of the newest evaluation: of the averages if they are evaluated, else of the weights */
    bool final;             /* the state after the last step */
};

/* Any pointer may be NULL. */
struct engine_hooks {
    void *ctx;
    /* At the end of engine_open: the state is loaded or initialised, and all ranks agree. */
    void (*joined)(void *ctx, int64_t from_step, const char *numerics_id);
    /* After each step, in order: one call with the gang's values (per_rank false, rank 0 only), one with this rank's
     * own. On cuda the next step may have begun. */
    void (*metrics)(void *ctx, int64_t step, bool per_rank, const struct engine_metric *metrics, int n);
    /* kind is one of: checkpoint_skipped, checkpoint_failed, numerics_changed, optimizer_started, average_started,
     * step_skipped (fp16 overflow or a spike), graph_refused (the device cannot capture steps and runs them call by
     * call), mfu_unknown (the device's peak FLOP/s are unknown), snapshot_slow (the system pins too little memory for
     * snapshots), profile_without_kernels, profile_failed. */
    void (*notice)(void *ctx, const char *kind, const char *message, int64_t step);
    void (*shard)(void *ctx, const struct engine_shard *shard);
    /* Before `shard`, from the same thread, which waits: this rank's files of the step are complete, and are to be kept
     * elsewhere. They are removed afterwards. An error fails the checkpoint. NULL: the files stay. */
    status_t (*keep)(void *ctx, int64_t step, struct err *e);
    /* engine_set_threads has taken effect: the step after `step` is the first with this number of threads. */
    void (*threads)(void *ctx, int threads, int64_t step);
    /* The compute thread makes progress: several times a step, and while it loads. Must be cheap. For hang
     * detection. */
    void (*progress)(void *ctx);
};

#endif
