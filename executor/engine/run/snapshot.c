#include "executor/engine/run/snapshot.h"

#include "base/clock.h"
#include "executor/engine/checkpoint/reader.h"
#include "executor/engine/run/state.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { KINDS = 3, UNCOMMITTED_MOST = 2 };

static const long WAIT_TICK_NS = 10 * 1000 * 1000;

static const char *const PREFIX[KINDS] = { "", "optimizer.m.", "optimizer.v." };

struct snapshot {
    struct engine *engine;
    struct checkpoint_writer *writer;
    struct checkpoint_tensor *tensors; /* kind after kind, each in the order of the parameters */
    struct checkpoint_piece *pieces;
    const float **data;
    char (*names)[CHECKPOINT_NAME_BYTES];
    int n_tensors, n_pieces;
    float *buffer;
    size_t bytes;
    char *tokenizer_json, *layout_json;
    bool final, has_validation_loss; /* of the snapshot in work: written while the writer is idle */
    double validation_loss;
    atomic_bool failed; /* a checkpoint could not be written, and the others do not know */
    pthread_mutex_t lock;
    int64_t uncommitted[UNCOMMITTED_MOST]; /* steps; -1 = free. Under the lock */
};

/* Where a checkpoint's tensor lives in the arena. */
static float *memory_of(const struct engine *engine, int tensor) {
    const struct execution *x = &engine->execution;
    int n = engine->graph->n_parameters;
    float *space[KINDS] = { x->parameters, x->moment1, x->moment2 };
    return space[tensor / n] + engine->train->parameter_begin[tensor % n];
}

static void name_tensor(const struct graph *g, int tensor, char ret[CHECKPOINT_NAME_BYTES]) {
    snprintf(ret, CHECKPOINT_NAME_BYTES, "%s%s", PREFIX[tensor / g->n_parameters],
             g->parameters[tensor % g->n_parameters].name);
}

static void describe_tensors(struct snapshot *s) {
    const struct graph *g = s->engine->graph;
    for (int t = 0; t < s->n_tensors; t++) {
        const struct shape *shape = &g->parameters[t % g->n_parameters].shape;
        name_tensor(g, t, s->names[t]);
        s->tensors[t] = (struct checkpoint_tensor){ .name = s->names[t], .n_dims = shape->n };
        memcpy(s->tensors[t].shape, shape->dim, (size_t)shape->n * sizeof shape->dim[0]);
    }
}

static status_t allocate_buffer(struct snapshot *s, struct err *e) {
    for (int i = 0; i < s->n_pieces; i++)
        s->bytes += (size_t)s->pieces[i].count * sizeof(float);
    s->buffer = mmap(NULL, s->bytes ? s->bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->buffer == MAP_FAILED) {
        s->buffer = NULL;
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a snapshot needs %zu bytes of memory, which the system refuses",
                       s->bytes);
    }
    (void)madvise(s->buffer, s->bytes, MADV_HUGEPAGE);
    memset(s->buffer, 0, s->bytes); /* touched now, so that the first checkpoint stalls no step */
    const float *at = s->buffer;
    for (int i = 0; i < s->n_pieces; i++) {
        s->data[i] = at;
        at += s->pieces[i].count;
    }
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
                                  .final = s->final };
    if (engine->hooks.shard)
        engine->hooks.shard(engine->hooks.ctx, &shard);
}

static status_t exchange(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    struct engine *engine = ctx;
    return collective_exchange(engine->collective, COLLECTIVE_CHECKPOINT, mine, n, all, e);
}

static status_t describe_layout(struct snapshot *s, struct err *e) {
    const struct engine_model *m = &s->engine->config.model;
    const struct engine_train *t = &s->engine->config.train;
    int n = asprintf(&s->layout_json,
                     "{\"data\":%d,\"pipeline\":1,\"zero\":0,\"lanes\":%d,\"reduce\":\"%s\",\"micro_batch\":%d,"
                     "\"model\":{\"family\":\"gpt\",\"layers\":%d,\"heads\":%d,\"width\":%d,\"context\":%d,"
                     "\"vocabulary\":%d}}",
                     s->engine->world_size, t->lanes, t->reduce == ENGINE_REDUCE_STEP ? "step" : "micro_batch",
                     t->micro_batch, m->layers, m->heads, m->width, m->context, m->vocabulary);
    if (n >= 0)
        return ST_OK;
    s->layout_json = NULL;
    return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the checkpoint's layout");
}

static status_t open_writer(struct snapshot *s, struct err *e) {
    struct engine *engine = s->engine;
    TRY(tokenizer_to_json(corpus_tokenizer(engine->corpus), &s->tokenizer_json, e));
    TRY(describe_layout(s, e));
    struct checkpoint_writer_config config = { .directory = engine->config.checkpoint.directory,
                                               .rank = engine->rank,
                                               .world_size = engine->world_size,
                                               .spec_json = engine->config.spec_json ? engine->config.spec_json : "{}",
                                               .layout_json = s->layout_json,
                                               .tokenizer_json = s->tokenizer_json,
                                               .data_sha256 = corpus_sha256(engine->corpus),
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
    int n = KINDS * engine->graph->n_parameters;
    if (!s)
        abort();
    pthread_mutex_init(&s->lock, NULL);
    memset(s->uncommitted, 0xff, sizeof s->uncommitted);
    s->engine = engine;
    s->n_tensors = n;
    s->tensors = calloc((size_t)n, sizeof *s->tensors);
    s->pieces = calloc((size_t)n, sizeof *s->pieces);
    s->data = calloc((size_t)n, sizeof *s->data);
    s->names = calloc((size_t)n, sizeof *s->names);
    if (!s->tensors || !s->pieces || !s->data || !s->names)
        abort();
    describe_tensors(s);
    s->n_pieces = checkpoint_cut(s->tensors, n, engine->rank, engine->world_size, s->pieces);
    TRY(allocate_buffer(s, e));
    TRY(open_writer(s, e));
    *ret = take_ptr(&s);
    return ST_OK;
}

struct snapshot *snapshot_close(struct snapshot *s) {
    if (!s)
        return NULL;
    s->writer = checkpoint_writer_close(s->writer);
    if (s->buffer)
        munmap(s->buffer, s->bytes ? s->bytes : 1);
    pthread_mutex_destroy(&s->lock);
    free(s->tensors);
    free(s->pieces);
    free(s->data);
    free(s->names);
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
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < s->n_pieces; i++) {
        const struct checkpoint_piece *p = &s->pieces[i];
        memcpy((float *)s->data[i], memory_of(engine, p->tensor) + p->first, (size_t)p->count * sizeof(float));
    }
    s->final = final;
    s->has_validation_loss = engine->has_validation_loss;
    s->validation_loss = engine->validation_loss;
    pthread_mutex_lock(&s->lock);
    int slot = s->uncommitted[0] < 0 ? 0 : UNCOMMITTED_MOST - 1;
    s->uncommitted[slot] = step;
    pthread_mutex_unlock(&s->lock);
    struct checkpoint_snapshot snapshot = { .step = step,
                                            .updates = engine->updates,
                                            .tensors = s->tensors,
                                            .n_tensors = s->n_tensors,
                                            .pieces = s->pieces,
                                            .data = s->data,
                                            .n_pieces = s->n_pieces };
    TRY(checkpoint_writer_submit(s->writer, &snapshot, e));
    *ret_stall_ns = clock_mono_ns() - start;
    return ST_OK;
}

status_t snapshot_wait(struct snapshot *s, struct err *e) {
    while (checkpoint_writer_busy(s->writer)) {
        engine_progress(s->engine);
        struct timespec tick = { .tv_nsec = WAIT_TICK_NS };
        nanosleep(&tick, NULL);
    }
    return checkpoint_writer_wait(s->writer, e);
}

void snapshot_committed(struct snapshot *s, int64_t step) { free_slot(s, step); }

bool snapshot_take_failure(struct snapshot *s) { return atomic_exchange(&s->failed, false); }

int64_t snapshot_bytes(const struct snapshot *s) { return (int64_t)s->bytes; }

/* --- back in ---*/

static status_t check_tensor(const struct engine *engine, const struct checkpoint_reader *reader, int t,
                             const char *name, struct err *e) {
    const struct graph *g = engine->graph;
    const struct shape *want = &g->parameters[t % g->n_parameters].shape;
    const struct checkpoint_tensor *have = checkpoint_reader_find(reader, name);
    if (!have)
        return err_set(e, ST_INVALID_ARGUMENT, "the checkpoint has no tensor %s: it is of another model", name);
    if (have->n_dims != want->n || memcmp(have->shape, want->dim, (size_t)want->n * sizeof want->dim[0]) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "tensor %s of the checkpoint has another shape: it is of another model",
                       name);
    return ST_OK;
}

/* Tensors and shapes do not tell how a width is cut into heads, nor that the checkpoint has layers more. */
static status_t check_model(const struct engine *engine, const struct checkpoint_info *info, struct err *e) {
    const struct engine_model *m = &engine->config.model;
    json_t *root = json_loads(info->layout_json, 0, NULL);
    int layers = 0, heads = 0;
    int failed = json_unpack(root, "{s:{s:i,s:i}}", "model", "layers", &layers, "heads", &heads);
    json_decref(root);
    if (failed)
        return err_set(e, ST_DATA_LOSS, "the checkpoint's manifest does not describe its model");
    if (layers != m->layers || heads != m->heads)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the checkpoint is of a model with %d layers and %d heads, not %d and %d", layers, heads,
                       m->layers, m->heads);
    return ST_OK;
}

static status_t check_info(struct engine *engine, const struct checkpoint_info *info, struct err *e) {
    TRY(check_model(engine, info, e));
    const char *data = corpus_sha256(engine->corpus);
    if (strcmp(info->data_sha256, data) != 0)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "data.text.files: the text has changed since the checkpoint (%.12s, then %.12s)", data,
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
    engine_notice(engine, "numerics_changed", info->step, "the checkpoint is of \"%s\", this rank runs \"%s\"",
                  info->numerics_id, engine->numerics_id);
    return ST_OK;
}

static void restore_progress(void *ctx) { engine_progress(ctx); }

status_t snapshot_restore(struct engine *engine, struct err *e) {
    struct checkpoint_reader_options options = { .progress = restore_progress, .ctx = engine };
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *reader = NULL;
    TRY(checkpoint_reader_open(engine->config.checkpoint.resume_directory, &options, &reader, e));
    const struct checkpoint_info *info = checkpoint_reader_info(reader);
    TRY(check_info(engine, info, e));
    for (int t = 0; t < KINDS * engine->graph->n_parameters; t++) {
        char name[CHECKPOINT_NAME_BYTES];
        name_tensor(engine->graph, t, name);
        TRY(check_tensor(engine, reader, t, name, e));
        int64_t n = shape_elements(&engine->graph->parameters[t % engine->graph->n_parameters].shape);
        TRY(checkpoint_reader_read(reader, name, 0, n, memory_of(engine, t), e));
    }
    atomic_store(&engine->step, info->step);
    engine->updates = info->updates;
    return ST_OK;
}
