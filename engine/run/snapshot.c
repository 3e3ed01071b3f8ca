/* Taking a checkpoint:
 *
 *   snapshot_take     the compute thread downloads this rank's segments of the state into staging buffers, and hands
 *   them
 *                     to the checkpoint writer. The step loop waits for this copy only
 *   on_written        the writer's thread reports the shard, or the failure, when the files are durable
 *   snapshot_committed the controller has recorded the shards of all ranks
 *
 * At most MAX_UNCOMMITTED checkpoints may be written or wait for their commit; while there are more, snapshot_busy
 * makes the ranks skip the next one.
 *
 * Restoring: check that the checkpoint fits the job (model, data, steps, numerics id), decide which optimizer states
 * and averages to take over, then fill the weights in every form that the layout holds, the states and averages of this
 * rank's segments, and the counters. */
#include "engine/run/snapshot.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/writer.h"
#include "engine/data/tokenizer.h"
#include "engine/run/engine_state.h"
#include "engine/run/staging_buffers.h"
#include "engine/run/state_tensors.h"
#include "engine/run/weights.h"
#include "kernels/step_decision.h"

#include <assert.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((size_t)CHECKPOINT_TUNING_CACHE_BYTES >= KERNELS_TUNING_CACHE_BYTES,
              "a tuning cache fits in a checkpoint");

enum {
    MAX_UNCOMMITTED = 2,
    PROGRESS_MS = 10, /* between two progress reports while snapshot_wait waits */
    GANG_MS = 1000,   /* between two exchanges of ranks that wait for each other's files */
};

struct snapshot {
    struct engine *engine;
    struct checkpoint_writer *writer;
    struct state_tensors *state;
    struct checkpoint_segment *segments;
    const float **data;   /* in the staging buffers, by segment */
    const float **memory; /* in the arena, by segment */
    int n_segments;
    struct staging_buffers *buffers;
    char *tuning_cache; /* of the kernels, in the newest checkpoint */
    char *tokenizer_json, *layout_json;
    bool final, has_validation_loss; /* of the snapshot being written; set only while the writer is idle */
    double validation_loss;
    atomic_bool failed; /* a checkpoint could not be written, and the other ranks do not know yet */
    pthread_mutex_t lock;
    int64_t uncommitted[MAX_UNCOMMITTED]; /* steps; -1 = unused. Under the lock */
};

static void report_progress(void *ctx) { engine_progress(ctx); }

/* Writes to every page now, so that the first checkpoint does not stall a step. */
static status_t allocate_buffers(struct snapshot *s, struct err *e) {
    struct engine *engine = s->engine;
    CLEANUP(freep) size_t *bytes = calloc((size_t)s->n_segments + 1, sizeof *bytes);
    if (!bytes)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for snapshots of %d segments", s->n_segments);
    for (int i = 0; i < s->n_segments; i++)
        bytes[i] = (size_t)s->segments[i].count * sizeof(float);
    struct err why;
    const status_t st = staging_buffers_new(engine->kernels, bytes, s->n_segments, STAGING_BUFFER_BYTES,
                                            report_progress, engine, (void **)s->data, &s->buffers, &why);
    if (st != ST_OK)
        return err_set(e, st, "memory for snapshots: %s", why.msg);
    if (staging_buffers_unpinned_bytes(s->buffers) > 0)
        engine_notice(engine, "snapshot_slow", engine_steps_done(engine),
                      "%zu of %zu bytes for snapshots could not be pinned: the device writes them more slowly",
                      staging_buffers_unpinned_bytes(s->buffers), staging_buffers_bytes(s->buffers));
    return ST_OK;
}

static void set_committed(struct snapshot *s, int64_t step) {
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < MAX_UNCOMMITTED; i++)
        if (s->uncommitted[i] >= 0 && s->uncommitted[i] <= step)
            s->uncommitted[i] = -1;
    pthread_mutex_unlock(&s->lock);
}

/* Called from the writer's thread. */
static void on_written(void *ctx, const struct checkpoint_result *r) {
    struct snapshot *s = ctx;
    struct engine *engine = s->engine;
    if (r->status != ST_OK) {
        atomic_store(&s->failed, true);
        set_committed(s, r->step);
        engine_notice(engine, "checkpoint_failed", r->step, "%s", r->message);
        return;
    }
    if (s->final)
        snprintf(engine->training.weights_sha256, sizeof engine->training.weights_sha256, "%s", r->weights_sha256);
    struct engine_shard shard = { .step = r->step,
                                  .rank = engine->rank,
                                  .world_size = engine->world_size,
                                  .directory = r->directory,
                                  .file = r->file,
                                  .bytes = r->bytes,
                                  .sha256 = r->sha256,
                                  .weights_sha256 = r->weights_sha256,
                                  .has_validation_loss = s->has_validation_loss,
                                  .validation_loss = s->validation_loss,
                                  .final = s->final && r->step == engine->config.train.steps };
    if (engine->hooks.shard)
        engine->hooks.shard(engine->hooks.ctx, &shard);
}

static status_t keep(void *ctx, int64_t step, struct err *e) {
    const struct snapshot *s = ctx;
    return s->engine->hooks.keep(s->engine->hooks.ctx, step, e);
}

static status_t exchange(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    struct engine *engine = ctx;
    return collective_all_gather_blobs(engine->collective, COLLECTIVE_CHECKPOINT, mine, n, all, e);
}

static void describe_layout(struct snapshot *s) {
    const struct plan_layout *l = &s->engine->train->layout;
    const struct engine_train *t = &s->engine->config.train;
    CLEANUP(freep) char *model = model_to_json(&s->engine->config.model);
    s->layout_json = alloc_format(
        "{\"data\":%d,\"pipeline\":%d,\"zero\":%d,\"lanes\":%d,\"reduce\":\"%s\",\"micro_batch\":%d,"
        "\"precision\":\"%s\",\"optimizer\":\"%s\",\"model\":%s}",
        l->data, l->stages, l->zero, t->lanes, PLAN_REDUCE_WORDS[t->reduce], t->micro_batch,
        ENGINE_PRECISION_NAMES[t->precision], t->optimizer.kind->name, model);
}

static status_t open_writer(struct snapshot *s, struct err *e) {
    struct engine *engine = s->engine;
    if (source_info(engine->source)->tokenizer)
        TRY(tokenizer_to_json(source_info(engine->source)->tokenizer, &s->tokenizer_json, e));
    describe_layout(s);
    struct checkpoint_writer_config config = { .directory = engine->config.checkpoint.directory,
                                               .roots = engine->config.checkpoint.roots,
                                               .rank = engine->rank,
                                               .world_size = engine->world_size,
                                               .spec_json = engine->config.spec_json ? engine->config.spec_json : "{}",
                                               .layout_json = s->layout_json,
                                               .tokenizer_json = s->tokenizer_json ? s->tokenizer_json : "{}",
                                               .data_sha256 = source_info(engine->source)->sha256,
                                               .numerics_id = engine->numerics_id,
                                               .exchange = exchange,
                                               .exchange_ctx = engine,
                                               .done = on_written,
                                               .keep = engine->hooks.keep ? keep : NULL,
                                               .done_ctx = s };
    return checkpoint_writer_open(&config, &s->writer, e);
}

status_t snapshot_open(struct engine *engine, struct snapshot **ret, struct err *e) {
    *ret = NULL;
    if (!engine->config.checkpoint.directory)
        return ST_OK;
    CLEANUP(snapshot_closep) struct snapshot *s = alloc_zeroed(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    memset(s->uncommitted, 0xff, sizeof s->uncommitted);
    s->engine = engine;
    s->state = state_tensors_new(engine->train);
    int max = state_segments_max(s->state, engine->train);
    s->segments = alloc_zeroed((size_t)max + 1, sizeof *s->segments);
    s->data = alloc_zeroed((size_t)max + 1, sizeof *s->data);
    s->memory = alloc_zeroed((size_t)max + 1, sizeof *s->memory);
    s->n_segments = state_segments(s->state, &engine->execution, engine->train, true, s->segments, (float **)s->memory);
    TRY(allocate_buffers(s, e));
    TRY(open_writer(s, e));
    *ret = take_ptr(&s);
    return ST_OK;
}

void snapshot_stop(struct snapshot *s) {
    if (s)
        s->writer = checkpoint_writer_close(s->writer);
}

struct snapshot *snapshot_close(struct snapshot *s) {
    if (!s)
        return NULL;
    snapshot_stop(s);
    s->buffers = staging_buffers_free(s->buffers);
    pthread_mutex_destroy(&s->lock);
    state_tensors_free(s->state);
    free(s->segments);
    free(s->data);
    free(s->memory);
    free(s->tuning_cache);
    free(s->tokenizer_json);
    free(s->layout_json);
    free(s);
    return NULL;
}

bool snapshot_busy(struct snapshot *s) {
    pthread_mutex_lock(&s->lock);
    bool full = true;
    for (int i = 0; i < MAX_UNCOMMITTED; i++)
        full &= s->uncommitted[i] >= 0;
    pthread_mutex_unlock(&s->lock);
    return full || checkpoint_writer_busy(s->writer);
}

status_t snapshot_take(struct snapshot *s, bool final, int64_t *ret_stall_ns, struct err *e) {
    struct engine *engine = s->engine;
    int64_t start = clock_mono_ns(), step = atomic_load(&engine->training.step);
    const struct kernels *k = engine->kernels;
    for (int i = 0; i < s->n_segments; i++)
        TRY(k->download(k, (float *)s->data[i], s->memory[i], (size_t)s->segments[i].count * sizeof(float), e));
    TRY(k->finish(k, e));
    free(s->tuning_cache);
    s->tuning_cache = k->tuning_cache(k);
    s->final = final;
    s->has_validation_loss = engine->training.evaluated;
    s->validation_loss = engine_validation_loss(engine);
    pthread_mutex_lock(&s->lock);
    int unused = s->uncommitted[0] < 0 ? 0 : MAX_UNCOMMITTED - 1;
    s->uncommitted[unused] = step;
    pthread_mutex_unlock(&s->lock);
    struct checkpoint_snapshot snapshot = { .step = step,
                                            .updates = engine->training.decision.update.number,
                                            .skipped = engine->training.skipped,
                                            .loss_scale = engine->training.decision.scale,
                                            .growth_count = engine->training.decision.growth_count,
                                            .samples = engine_first_sample(engine, step),
                                            .not_finite = engine->training.decision.not_finite,
                                            .spike_norms = engine->training.decision.norms,
                                            .n_spike_norms = (int)engine->training.decision.n_norms,
                                            .tensors = s->state->tensors,
                                            .n_tensors = s->state->n,
                                            .segments = s->segments,
                                            .data = s->data,
                                            .n_segments = s->n_segments,
                                            .tuning_cache = s->tuning_cache };
    TRY(checkpoint_writer_submit(s->writer, &snapshot, e));
    *ret_stall_ns = clock_mono_ns() - start;
    return ST_OK;
}

status_t snapshot_wait(struct snapshot *s, struct err *e) {
    while (!checkpoint_writer_wait_ms(s->writer, PROGRESS_MS))
        engine_progress(s->engine);
    return checkpoint_writer_wait(s->writer, e);
}

status_t snapshot_wait_all(struct snapshot *s, struct err *e) {
    struct engine *engine = s->engine;
    const struct collective_group world = collective_world(engine->collective);
    for (uint64_t busy = 1; busy && engine->world_size > 1;) {
        const deadline_ms_t end = deadline_in(GANG_MS);
        engine_progress(engine);
        while ((busy = !checkpoint_writer_wait_ms(s->writer, PROGRESS_MS)) && clock_mono_ms() < end)
            engine_progress(engine);
        TRY(collective_or(engine->collective, COLLECTIVE_CONTROL, &world, &busy, 1, e));
    }
    return ST_OK;
}

void snapshot_committed(struct snapshot *s, int64_t step) { set_committed(s, step); }

bool snapshot_take_failure(struct snapshot *s) { return atomic_exchange(&s->failed, false); }

/* --- restoring --- */

static status_t check_tensor(const struct checkpoint_reader *reader, const struct checkpoint_tensor *want,
                             struct err *e) {
    const struct checkpoint_tensor *have = checkpoint_reader_find(reader, want->name);
    if (!have)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the checkpoint has no tensor %s: it belongs to another model or optimizer", want->name);
    if (have->n_dims != want->n_dims ||
        memcmp(have->shape, want->shape, (size_t)want->n_dims * sizeof want->shape[0]) != 0)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor %s of the checkpoint has another shape: it belongs to another model", want->name);
    return ST_OK;
}

/* Names and shapes of tensors do not show the number of heads, or that the checkpoint has more layers. */
static status_t check_model(const struct engine *engine, const struct checkpoint_info *info, struct err *e) {
    struct model_config theirs;
    TRY(model_from_layout(info->layout_json, &theirs, e));
    return model_takes(&engine->config.model, &theirs, e);
}

static bool is_changed(const struct engine *engine, const struct checkpoint_info *info) {
    return strcmp(info->data_sha256, source_info(engine->source)->sha256) != 0;
}

/* A fork may have other data, if it says so. The checkpoints that it writes have its own data again. */
static status_t check_data(struct engine *engine, const struct checkpoint_info *info, struct err *e) {
    const struct engine_checkpoints *c = &engine->config.checkpoint;
    const char *data = source_info(engine->source)->sha256;
    if (!is_changed(engine, info))
        return ST_OK;
    if (!c->forked || c->changed_data == ENGINE_DATA_REFUSE)
        return err_set(e, ST_INVALID_ARGUMENT, "data: it has changed since the checkpoint (digest %.12s, then %.12s)",
                       data, info->data_sha256);
    if (engine->rank == 0)
        engine_notice(engine, "data_changed", info->step,
                      "the data are not those of the checkpoint (digest %.12s, then %.12s): samples are numbered %s",
                      data, info->data_sha256, c->changed_data == ENGINE_DATA_RESTART ? "from 0" : "on");
    return ST_OK;
}

/* The number of the first sample after the checkpoint. Early checkpoints do not have it. */
static int64_t next_sample(const struct engine *engine, const struct checkpoint_info *info) {
    const bool restart = engine->config.checkpoint.changed_data == ENGINE_DATA_RESTART;
    if (engine->config.checkpoint.forked && restart && is_changed(engine, info))
        return 0;
    return info->samples >= 0 ? info->samples : info->step * engine->config.train.global_batch;
}

static status_t check_info(struct engine *engine, const struct checkpoint_info *info, struct err *e) {
    TRY(check_model(engine, info, e));
    TRY(check_data(engine, info, e));
    if (info->step > engine->config.train.steps)
        return err_set(e, ST_INVALID_ARGUMENT, "train.steps: %lld is less than the checkpoint's step %lld",
                       (long long)engine->config.train.steps, (long long)info->step);
    if (strcmp(info->numerics_id, engine->numerics_id) == 0)
        return ST_OK;
    if (engine->config.train.numerics == ENGINE_NUMERICS_STRICT)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "train.numerics: strict refuses to resume under \"%s\" from a checkpoint of \"%s\"",
                       engine->numerics_id, info->numerics_id);
    if (engine->rank == 0) /* all ranks have the same id */
        engine_notice(
            engine, "numerics_changed", info->step,
            "the checkpoint was computed by \"%s\", this run by \"%s\": results may differ in their last bits",
            info->numerics_id, engine->numerics_id);
    return ST_OK;
}

struct restoring {
    struct engine *engine;
    struct checkpoint_reader *reader;
    bool optimizer, average; /* whether the checkpoint's are taken over; else they start anew */
};

/* Compares optimizers by name: state names alone would let lion take over adamw's m. */
static status_t choose_states(struct restoring *r, const struct checkpoint_info *info, struct err *e) {
    const char *ours = r->engine->config.train.optimizer.kind->name;
    CLEANUP(json_decrefp) json_t *layout = json_loads(info->layout_json, 0, NULL);
    const char *theirs = json_string_value(json_object_get(layout, "optimizer"));
    if (!theirs)
        return err_set(e, ST_DATA_LOSS, "the checkpoint's manifest does not name its optimizer");
    r->optimizer = strcmp(ours, theirs) == 0;
    for (int t = 0; t < info->n_tensors; t++)
        r->average |= strncmp(info->tensors[t].name, CHECKPOINT_AVERAGE_PREFIX, strlen(CHECKPOINT_AVERAGE_PREFIX)) == 0;
    if (r->engine->rank != 0)
        return ST_OK;
    if (!r->optimizer)
        engine_notice(r->engine, "optimizer_started", info->step,
                      "the checkpoint's optimizer is %.32s, not %s: the states of %s start from zero", theirs, ours,
                      ours);
    if (!r->average && r->engine->train->layout.ema)
        engine_notice(r->engine, "average_started", info->step,
                      "the checkpoint has no averaged weights: train.ema starts from its weights");
    return ST_OK;
}

static bool is_taken_over(const struct restoring *r, const struct state_tensor *t) {
    return t->kind == STATE_OPTIMIZER ? r->optimizer : t->kind == STATE_AVERAGE ? r->average : true;
}

static status_t read_weight(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    struct restoring *r = ctx;
    return checkpoint_reader_read(r->reader, r->engine->graph->parameters[parameter].name, first, count, data, e);
}

struct tensor_read {
    struct checkpoint_reader *reader;
    const char *tensor;
};

static status_t read_tensor(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    const struct tensor_read *r = ctx;
    (void)parameter;
    return checkpoint_reader_read(r->reader, r->tensor, first, count, data, e);
}

/* Weights in every form that the layout holds; optimizer states and averages of this rank's pieces. */
static status_t read_state(struct restoring *r, const struct state_tensors *state, struct err *e) {
    const struct execution *x = &r->engine->execution;
    const struct plan *plan = r->engine->train;
    for (int t = 0; t < state->n; t++)
        if (is_taken_over(r, &state->of[t]))
            TRY(check_tensor(r->reader, &state->tensors[t], e));
    TRY(weights_fill(x, plan, read_weight, r, e));
    if (!r->average)
        TRY(weights_start_average(x, plan, e));
    int max = state_segments_max(state, plan);
    CLEANUP(freep) struct checkpoint_segment *segments = alloc_zeroed((size_t)max + 1, sizeof *segments);
    CLEANUP(freep) float **memory = alloc_zeroed((size_t)max + 1, sizeof *memory);
    int n = state_segments(state, x, plan, false, segments, memory);
    for (int i = 0; i < n; i++)
        if (state->of[segments[i].tensor].kind != STATE_WEIGHT && is_taken_over(r, &state->of[segments[i].tensor]))
            TRY(weights_fill_state(x, memory[i], read_tensor,
                                   &(struct tensor_read){ r->reader, state->tensors[segments[i].tensor].name },
                                   state->of[segments[i].tensor].parameter, segments[i].first, segments[i].count, e));
    return ST_OK;
}

/* The loss scale and the norms for spike detection, if this configuration uses them. */
static void restore_decision(struct engine *engine, const struct checkpoint_info *info) {
    const struct engine_train *t = &engine->config.train;
    struct decision *d = &engine->training.decision;
    if (t->precision == ENGINE_FP16 && info->loss_scale > 0) {
        d->scale = info->loss_scale;
        d->growth_count = info->growth_count;
    }
    d->not_finite = info->not_finite;
    for (int i = 0; i < info->n_spike_norms && t->skip_spikes.z_score > 0; i++)
        decide_norm_add(d, info->spike_norms[i], t->skip_spikes.window);
}

status_t snapshot_read_status(status_t st) {
    return st == ST_NOT_FOUND || st == ST_PERMISSION_DENIED ? ST_ABORTED : st;
}

status_t snapshot_tuning_cache(const struct engine *engine, char **ret, struct err *e) {
    const struct engine_checkpoints *c = &engine->config.checkpoint;
    return snapshot_read_status(checkpoint_tuning_caches(c->roots, c->resume_directory, engine->rank, ret, e));
}

static status_t exchange_proofs(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    struct engine *engine = ctx;
    return collective_all_gather_blobs(engine->collective, COLLECTIVE_CONTROL, mine, n, all, e);
}

static status_t restore(struct engine *engine, struct err *e) {
    struct checkpoint_reader_options options = { .roots = engine->config.checkpoint.roots,
                                                 .progress = report_progress,
                                                 .ctx = engine,
                                                 .rank = engine->rank,
                                                 .world_size = engine->world_size,
                                                 .exchange = exchange_proofs,
                                                 .exchange_ctx = engine };
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *reader = NULL;
    TRY(checkpoint_reader_open(engine->config.checkpoint.resume_directory, &options, &reader, e));
    const struct checkpoint_info *info = checkpoint_reader_info(reader);
    TRY(check_info(engine, info, e));
    struct restoring r = { .engine = engine, .reader = reader };
    TRY(choose_states(&r, info, e));
    CLEANUP(state_tensors_freep) struct state_tensors *state = state_tensors_new(engine->train);
    TRY(read_state(&r, state, e));
    atomic_store(&engine->training.step, info->step);
    engine->first = (struct engine_first){ info->step, next_sample(engine, info) };
    engine->training.decision.update.number = r.optimizer ? info->updates : 0;
    engine->training.skipped = info->skipped;
    restore_decision(engine, info);
    return ST_OK;
}

status_t snapshot_restore(struct engine *engine, struct err *e) { return snapshot_read_status(restore(engine, e)); }
