#include "executor/engine/run/snapshot.h"

#include "base/clock.h"
#include "executor/engine/checkpoint/reader.h"
#include "executor/engine/data/tokenizer.h"
#include "executor/engine/run/host_rooms.h"
#include "executor/engine/run/state.h"
#include "executor/engine/run/tensors.h"
#include "executor/engine/run/weights.h"
#include "kernels/decide.h"

#include <assert.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((size_t)CHECKPOINT_RECORD_BYTES >= KERNELS_RECORD_BYTES, "what kernels have chosen can be kept");

enum { UNCOMMITTED_MOST = 2, PROGRESS_MS = 10 /* between two signs of life while it waits */ };

struct snapshot {
    struct engine *engine;
    struct checkpoint_writer *writer;
    struct state_tensors *state;
    struct checkpoint_piece *pieces;
    const float **data;   /* in the rooms, by piece */
    const float **memory; /* in the arena, by piece */
    int n_pieces;
    struct host_rooms *rooms;
    char *record; /* of the kernels, in the newest checkpoint */
    char *tokenizer_json, *layout_json;
    bool final, has_validation_loss; /* of the snapshot in work: written while the writer is idle */
    double validation_loss;
    atomic_bool failed; /* a checkpoint could not be written, and the others do not know */
    pthread_mutex_t lock;
    int64_t uncommitted[UNCOMMITTED_MOST]; /* steps; -1 = free. Under the lock */
};

static void tell_progress(void *ctx) { engine_progress(ctx); }

/* Touched now, so that the first checkpoint stalls no step. */
static status_t allocate_rooms(struct snapshot *s, struct err *e) {
    struct engine *engine = s->engine;
    CLEANUP(freep) size_t *bytes = calloc((size_t)s->n_pieces + 1, sizeof *bytes);
    if (!bytes)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for snapshots of %d pieces", s->n_pieces);
    for (int i = 0; i < s->n_pieces; i++)
        bytes[i] = (size_t)s->pieces[i].count * sizeof(float);
    struct err why;
    const status_t st = host_rooms_new(engine->kernels, bytes, s->n_pieces, HOST_ROOM_BYTES, tell_progress, engine,
                                       (void **)s->data, &s->rooms, &why);
    if (st != ST_OK)
        return err_set(e, st, "memory for snapshots: %s", why.msg);
    if (host_rooms_unpinned(s->rooms) > 0)
        engine_notice(engine, "snapshot_slow", engine_step(engine),
                      "of %zu bytes for snapshots %zu are in memory that the device writes slower: the system pins no "
                      "more",
                      host_rooms_bytes(s->rooms), host_rooms_unpinned(s->rooms));
    return ST_OK;
}

static void free_slot(struct snapshot *s, int64_t step) {
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < UNCOMMITTED_MOST; i++)
        if (s->uncommitted[i] >= 0 && s->uncommitted[i] <= step)
            s->uncommitted[i] = -1;
    pthread_mutex_unlock(&s->lock);
}

/* From the writer's thread. */
static void written(void *ctx, const struct checkpoint_result *r) {
    struct snapshot *s = ctx;
    struct engine *engine = s->engine;
    if (r->status != ST_OK) {
        atomic_store(&s->failed, true);
        free_slot(s, r->step);
        engine_notice(engine, "checkpoint_failed", r->step, "%s", r->message);
        return;
    }
    if (s->final)
        snprintf(engine->weights_sha256, sizeof engine->weights_sha256, "%s", r->weights_sha256);
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

static status_t exchange(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    struct engine *engine = ctx;
    return collective_exchange(engine->collective, COLLECTIVE_CHECKPOINT, mine, n, all, e);
}

static status_t describe_layout(struct snapshot *s, struct err *e) {
    const struct plan_layout *l = &s->engine->train->layout;
    const struct engine_train *t = &s->engine->config.train;
    CLEANUP(freep) char *model = model_to_json(&s->engine->config.model);
    int n = !model
                ? -1
                : asprintf(&s->layout_json,
                           "{\"data\":%d,\"pipeline\":%d,\"zero\":%d,\"lanes\":%d,\"reduce\":\"%s\",\"micro_batch\":%d,"
                           "\"precision\":\"%s\",\"optimizer\":\"%s\",\"model\":%s}",
                           l->data, l->stages, l->zero, t->lanes, PLAN_REDUCE_WORDS[t->reduce], t->micro_batch,
                           ENGINE_PRECISION_WORDS[t->precision], t->optimizer.kind->name, model);
    if (n >= 0)
        return ST_OK;
    s->layout_json = NULL;
    return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the checkpoint's layout");
}

static status_t open_writer(struct snapshot *s, struct err *e) {
    struct engine *engine = s->engine;
    if (source_info(engine->source)->tokenizer)
        TRY(tokenizer_to_json(source_info(engine->source)->tokenizer, &s->tokenizer_json, e));
    TRY(describe_layout(s, e));
    struct checkpoint_writer_config config = { .directory = engine->config.checkpoint.directory,
                                               .rank = engine->rank,
                                               .world_size = engine->world_size,
                                               .spec_json = engine->config.spec_json ? engine->config.spec_json : "{}",
                                               .layout_json = s->layout_json,
                                               .tokenizer_json = s->tokenizer_json ? s->tokenizer_json : "{}",
                                               .data_sha256 = source_info(engine->source)->sha256,
                                               .numerics_id = engine->numerics_id,
                                               .exchange = exchange,
                                               .exchange_ctx = engine,
                                               .done = written,
                                               .done_ctx = s };
    return checkpoint_writer_open(&config, &s->writer, e);
}

status_t snapshot_open(struct engine *engine, struct snapshot **ret, struct err *e) {
    *ret = NULL;
    if (!engine->config.checkpoint.directory)
        return ST_OK;
    CLEANUP(snapshot_closep) struct snapshot *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for snapshots");
    pthread_mutex_init(&s->lock, NULL);
    memset(s->uncommitted, 0xff, sizeof s->uncommitted);
    s->engine = engine;
    TRY(state_tensors_new(engine->train, &s->state, e));
    int most = state_pieces_most(s->state, engine->train);
    s->pieces = calloc((size_t)most + 1, sizeof *s->pieces);
    s->data = calloc((size_t)most + 1, sizeof *s->data);
    s->memory = calloc((size_t)most + 1, sizeof *s->memory);
    if (!s->pieces || !s->data || !s->memory)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for snapshots of %d pieces", most);
    s->n_pieces = state_pieces(s->state, &engine->execution, engine->train, true, s->pieces, (float **)s->memory);
    TRY(allocate_rooms(s, e));
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
    s->rooms = host_rooms_free(s->rooms);
    pthread_mutex_destroy(&s->lock);
    state_tensors_free(s->state);
    free(s->pieces);
    free(s->data);
    free(s->memory);
    free(s->record);
    free(s->tokenizer_json);
    free(s->layout_json);
    free(s);
    return NULL;
}

bool snapshot_busy(struct snapshot *s) {
    pthread_mutex_lock(&s->lock);
    bool full = true;
    for (int i = 0; i < UNCOMMITTED_MOST; i++)
        full &= s->uncommitted[i] >= 0;
    pthread_mutex_unlock(&s->lock);
    return full || checkpoint_writer_busy(s->writer);
}

status_t snapshot_take(struct snapshot *s, bool final, int64_t *ret_stall_ns, struct err *e) {
    struct engine *engine = s->engine;
    int64_t start = clock_mono_ns(), step = atomic_load(&engine->step);
    const struct kernels *k = engine->kernels;
    for (int i = 0; i < s->n_pieces; i++)
        TRY(k->download(k, (float *)s->data[i], s->memory[i], (size_t)s->pieces[i].count * sizeof(float), e));
    TRY(k->finish(k, e));
    free(take_ptr(&s->record));
    TRY(k->record(k, &s->record, e));
    s->final = final;
    s->has_validation_loss = engine->has_validation_loss;
    s->validation_loss = engine->validation_loss;
    pthread_mutex_lock(&s->lock);
    int slot = s->uncommitted[0] < 0 ? 0 : UNCOMMITTED_MOST - 1;
    s->uncommitted[slot] = step;
    pthread_mutex_unlock(&s->lock);
    struct checkpoint_snapshot snapshot = { .step = step,
                                            .updates = engine->decision.update.number,
                                            .skipped = engine->skipped,
                                            .loss_scale = engine->decision.scale,
                                            .growth_count = engine->decision.growth_count,
                                            .spike_norms = engine->decision.norms,
                                            .n_spike_norms = (int)engine->decision.n_norms,
                                            .tensors = s->state->tensors,
                                            .n_tensors = s->state->n,
                                            .pieces = s->pieces,
                                            .data = s->data,
                                            .n_pieces = s->n_pieces,
                                            .record = s->record };
    TRY(checkpoint_writer_submit(s->writer, &snapshot, e));
    *ret_stall_ns = clock_mono_ns() - start;
    return ST_OK;
}

status_t snapshot_wait(struct snapshot *s, struct err *e) {
    while (!checkpoint_writer_wait_ms(s->writer, PROGRESS_MS))
        engine_progress(s->engine);
    return checkpoint_writer_wait(s->writer, e);
}

void snapshot_committed(struct snapshot *s, int64_t step) { free_slot(s, step); }

bool snapshot_take_failure(struct snapshot *s) { return atomic_exchange(&s->failed, false); }

/* --- back in ---*/

static status_t check_tensor(const struct checkpoint_reader *reader, const struct checkpoint_tensor *want,
                             struct err *e) {
    const struct checkpoint_tensor *have = checkpoint_reader_find(reader, want->name);
    if (!have)
        return err_set(e, ST_INVALID_ARGUMENT, "the checkpoint has no tensor %s: it is of another model or optimizer",
                       want->name);
    if (have->n_dims != want->n_dims ||
        memcmp(have->shape, want->shape, (size_t)want->n_dims * sizeof want->shape[0]) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "tensor %s of the checkpoint has another shape: it is of another model",
                       want->name);
    return ST_OK;
}

/* Tensors and shapes do not tell how a width is cut into heads, nor that the checkpoint has layers more. */
static status_t check_model(const struct engine *engine, const struct checkpoint_info *info, struct err *e) {
    struct model_config theirs;
    TRY(model_from_layout(info->layout_json, &theirs, e));
    return model_takes(&engine->config.model, &theirs, e);
}

static status_t check_info(struct engine *engine, const struct checkpoint_info *info, struct err *e) {
    TRY(check_model(engine, info, e));
    const char *data = source_info(engine->source)->sha256;
    if (strcmp(info->data_sha256, data) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "data: it has changed since the checkpoint (%.12s, then %.12s)", data,
                       info->data_sha256);
    if (info->step > engine->config.train.steps)
        return err_set(e, ST_INVALID_ARGUMENT, "train.steps: %lld is less than the checkpoint's step %lld",
                       (long long)engine->config.train.steps, (long long)info->step);
    if (strcmp(info->numerics_id, engine->numerics_id) == 0)
        return ST_OK;
    if (engine->config.train.numerics == ENGINE_NUMERICS_STRICT)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "train.numerics: strict refuses to go on under \"%s\" from a checkpoint of \"%s\"",
                       engine->numerics_id, info->numerics_id);
    if (engine->rank == 0) /* all ranks run the same */
        engine_notice(engine, "numerics_changed", info->step, "the checkpoint is of \"%s\", this run is of \"%s\"",
                      info->numerics_id, engine->numerics_id);
    return ST_OK;
}

struct restoring {
    struct engine *engine;
    struct checkpoint_reader *reader;
    bool optimizer, average; /* the checkpoint's are taken over; else they start anew */
};

/* The states' names alone would let lion take adamw's m for its own. */
static status_t judge_states(struct restoring *r, const struct checkpoint_info *info, struct err *e) {
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

struct reading {
    struct checkpoint_reader *reader;
    const char *tensor;
};

static status_t read_tensor(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    const struct reading *r = ctx;
    (void)parameter;
    return checkpoint_reader_read(r->reader, r->tensor, first, count, data, e);
}

/* Weights in the form that the layout asks for; optimizer states and averages of this rank's pieces. */
static status_t read_state(struct restoring *r, const struct state_tensors *state, struct err *e) {
    const struct execution *x = &r->engine->execution;
    const struct plan *plan = r->engine->train;
    for (int t = 0; t < state->n; t++)
        if (is_taken_over(r, &state->of[t]))
            TRY(check_tensor(r->reader, &state->tensors[t], e));
    TRY(weights_fill(x, plan, read_weight, r, e));
    if (!r->average)
        TRY(weights_start_average(x, plan, e));
    int most = state_pieces_most(state, plan);
    CLEANUP(freep) struct checkpoint_piece *pieces = calloc((size_t)most + 1, sizeof *pieces);
    CLEANUP(freep) float **memory = calloc((size_t)most + 1, sizeof *memory);
    if (!pieces || !memory)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to read %d pieces of a checkpoint", most);
    int n = state_pieces(state, x, plan, false, pieces, memory);
    for (int i = 0; i < n; i++)
        if (state->of[pieces[i].tensor].kind != STATE_WEIGHT && is_taken_over(r, &state->of[pieces[i].tensor]))
            TRY(weights_fill_state(x, memory[i], read_tensor,
                                   &(struct reading){ r->reader, state->tensors[pieces[i].tensor].name },
                                   state->of[pieces[i].tensor].parameter, pieces[i].first, pieces[i].count, e));
    return ST_OK;
}

/* The loss scale and the norms that spikes are told by, as far as this configuration has any. */
static void restore_decision(struct engine *engine, const struct checkpoint_info *info) {
    const struct engine_train *t = &engine->config.train;
    struct decision *d = &engine->decision;
    if (t->precision == ENGINE_FP16 && info->loss_scale > 0) {
        d->scale = info->loss_scale;
        d->growth_count = info->growth_count;
    }
    for (int i = 0; i < info->n_spike_norms && t->skip_spikes.z_score > 0; i++)
        decide_norm_add(d, info->spike_norms[i], t->skip_spikes.window);
}

/* A folder that is gone is as bad a checkpoint as one that is damaged, and no fault of the spec. */
static status_t judge_folder(status_t st) { return st == ST_NOT_FOUND ? ST_DATA_LOSS : st; }

status_t snapshot_record(const struct engine *engine, char **ret, struct err *e) {
    return judge_folder(checkpoint_records(engine->config.checkpoint.resume_directory, engine->rank, ret, e));
}

status_t snapshot_restore(struct engine *engine, struct err *e) {
    struct checkpoint_reader_options options = { .progress = tell_progress, .ctx = engine };
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *reader = NULL;
    status_t st = judge_folder(
        checkpoint_reader_open(engine->config.checkpoint.resume_directory, &options, &reader, e));
    TRY(st);
    const struct checkpoint_info *info = checkpoint_reader_info(reader);
    TRY(check_info(engine, info, e));
    struct restoring r = { .engine = engine, .reader = reader };
    TRY(judge_states(&r, info, e));
    CLEANUP(state_tensors_freep) struct state_tensors *state = NULL;
    TRY(state_tensors_new(engine->train, &state, e));
    TRY(read_state(&r, state, e));
    atomic_store(&engine->step, info->step);
    engine->decision.update.number = r.optimizer ? info->updates : 0;
    engine->skipped = info->skipped;
    restore_decision(engine, info);
    return ST_OK;
}
