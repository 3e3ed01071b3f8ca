#include "executor/engine/run/engine.h"

#include "executor/engine/pretrained/pretrained.h"
#include "executor/engine/run/initial.h"
#include "executor/engine/run/state.h"
#include "executor/engine/run/weights.h"

#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What ranks must agree on, as each brings it to the meeting. */
struct identity {
    char computes[KERNELS_NUMERICS_ID_BYTES + ENGINE_FAST_NOTE_BYTES +
                  96]; /* numerics id, how a step is cut up, and step */
    char data[80];     /* the text's SHA-256 */
};

void engine_progress(struct engine *engine) {
    if (engine->hooks.progress)
        engine->hooks.progress(engine->hooks.ctx);
}

static void progress(void *ctx) { engine_progress(ctx); }

void engine_notice(struct engine *engine, const char *kind, int64_t step, const char *fmt, ...) {
    if (!engine->hooks.notice)
        return;
    struct err text;
    va_list args;
    va_start(args, fmt);
    status_ignore(err_vset(&text, ST_OK, fmt, args));
    va_end(args);
    engine->hooks.notice(engine->hooks.ctx, kind, text.msg, step);
}

enum engine_outcome engine_outcome_of(status_t st) {
    switch (st) {
    case ST_OK: return ENGINE_FINISHED;
    case ST_INVALID_ARGUMENT:
    case ST_NOT_FOUND:
    case ST_PERMISSION_DENIED:
    case ST_UNIMPLEMENTED: return ENGINE_BAD_SPEC;
    case ST_UNAVAILABLE:
    case ST_DEADLINE_EXCEEDED:
    case ST_CANCELLED: return ENGINE_PEER_LOST;
    case ST_DATA_LOSS: return ENGINE_CHECKPOINT_BAD;
    case ST_OUT_OF_RANGE: return ENGINE_NUMERIC;
    default: return ENGINE_INTERNAL;
    }
}

static status_t initial_source(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    struct engine *engine = ctx;
    (void)e;
    initial_parameter(&engine->graph->parameters[parameter], parameter, engine->config.train.seed, first, count, data);
    engine_progress(engine);
    return ST_OK;
}

struct borrowing {
    struct engine *engine;
    struct pretrained *from;
};

static status_t pretrained_source(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    const struct borrowing *b = ctx;
    engine_progress(b->engine);
    return pretrained_read(b->from, b->engine->graph->parameters[parameter].name, first, count, data, e);
}

/* train.init_from: the weights alone, of a checkpoint or a folder of Hugging Face's. */
static status_t borrow_weights(struct engine *engine, struct err *e) {
    const struct pretrained_options options = { .progress = progress, .ctx = engine };
    CLEANUP(pretrained_closep) struct pretrained *from = NULL;
    struct err why = { "" };
    status_t st = pretrained_open(engine->config.train.init_from, &options, &from, &why);
    if (st == ST_OK)
        st = pretrained_check(from, &engine->config.model, engine->graph, &why);
    struct borrowing b = { engine, from };
    if (st == ST_OK)
        st = weights_fill(&engine->execution, engine->train, pretrained_source, &b, &why);
    /* What is wrong with these files is the spec's fault, and no resume checkpoint's. */
    return st == ST_OK ? ST_OK
                       : err_set(e, st == ST_DATA_LOSS ? ST_INVALID_ARGUMENT : st, "train.init_from: %s", why.msg);
}

static status_t load_state(struct engine *engine, struct err *e) {
    const struct engine_train *t = &engine->config.train;
    engine->decision.scale = t->precision == ENGINE_FP16 ? t->loss_scale.initial : 1;
    if (engine->config.checkpoint.resume_directory)
        return snapshot_restore(engine, e);
    if (t->init_from)
        TRY(borrow_weights(engine, e));
    else
        TRY(weights_fill(&engine->execution, engine->train, initial_source, engine, e));
    return weights_start_average(&engine->execution, engine->train, e);
}

static status_t compare_identity(const struct engine *engine, const struct identity *mine, int r,
                                 const struct identity *other, struct err *e) {
    if (memcmp(other->computes, mine->computes, sizeof mine->computes) != 0)
        return err_set(e, ST_FAILED_PRECONDITION, "rank %d runs \"%s\", rank %d runs \"%s\": a gang computes alike",
                       engine->rank, mine->computes, r, other->computes);
    if (memcmp(other->data, mine->data, sizeof mine->data) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "data: rank %d reads other data (%.12s) than rank %d (%.12s)", r,
                       other->data, engine->rank, mine->data);
    return ST_OK;
}

/* All ranks compute alike on the same data and stand at the same step, or none starts. */
static status_t meet(struct engine *engine, struct err *e) {
    struct identity mine = { 0 };
    CLEANUP(freep) struct identity *all = calloc((size_t)engine->world_size, sizeof *all);
    if (!all)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to compare %d ranks", engine->world_size);
    const struct engine_train *t = &engine->config.train;
    snprintf(mine.computes, sizeof mine.computes, "%s, micro_batch %d, lanes %d, recompute %d, at step %lld",
             engine->numerics_id, t->micro_batch, t->lanes, (int)t->recompute, (long long)engine_step(engine));
    snprintf(mine.data, sizeof mine.data, "%s", source_info(engine->source)->sha256);
    TRY(collective_all_gather(engine->collective, COLLECTIVE_CONTROL, &mine, sizeof mine, all, e));
    status_t st = ST_OK;
    for (int r = 0; r < engine->world_size && st == ST_OK; r++)
        st = compare_identity(engine, &mine, r, &all[r], e);
    /* Every rank finds the same difference: none leaves, which would abort the others, before all have it. */
    if (st != ST_OK)
        status_ignore(collective_barrier(engine->collective, COLLECTIVE_CONTROL, NULL));
    return st;
}

static status_t open_parts(struct engine *engine, struct err *e) {
    const struct engine_config *c = &engine->config;
    if (engine->world_size > 1 && strcmp(c->device, "cpu") != 0)
        TRY(collective_device_environment(c->layout.pipeline != 1, e));
    TRY(engine_prepare(engine, e));
    TRY(load_state(engine, e));
    TRY(engine_start(engine, e));
    TRY(engine_open_loader(engine, e));
    TRY(snapshot_open(engine, &engine->snapshot, e));
    TRY(meet(engine, e));
    const struct plan *const plans[] = { engine->train, engine->evaluate };
    if (engine->world_size > 1)
        TRY(channel_open(engine->collective, plans, engine->evaluate ? 2 : 1, &engine->channel, e));
    engine->execution.channel = engine->channel;
    if (collective_deferred(engine->collective))
        TRY(wait_clock_open(engine->kernels, plans, engine->evaluate ? 2 : 1, &engine->execution.wait_clock, e));
    return ST_OK;
}

status_t engine_open(const struct engine_config *config, struct collective *collective,
                     const struct engine_hooks *hooks, struct engine **ret, struct err *e) {
    CLEANUP(engine_closep) struct engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for an engine");
    engine->config = *config;
    engine->hooks = hooks ? *hooks : (struct engine_hooks){ 0 };
    engine->collective = collective;
    engine->rank = collective_rank(collective);
    engine->world_size = collective_world_size(collective);
    omp_set_num_threads(config->threads); /* of this thread's teams: the engine's own loops and the kernels' */
    engine->statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    struct err mine = { "" };
    status_t st = open_parts(engine, &mine);
    if (st != ST_OK)
        return collective_fail(collective, st, &mine, e);
    if (engine->hooks.joined)
        engine->hooks.joined(engine->hooks.ctx, engine_step(engine), engine->numerics_id);
    *ret = take_ptr(&engine);
    return ST_OK;
}

void engine_stop_request(struct engine *engine) { atomic_store(&engine->stop, true); }

void engine_checkpoint_committed(struct engine *engine, int64_t step) {
    if (engine->snapshot)
        snapshot_committed(engine->snapshot, step);
}

int64_t engine_step(const struct engine *engine) { return atomic_load(&engine->step); }
size_t engine_arena_bytes(const struct engine *engine) { return engine->arena.bytes; }

const char *engine_weights_sha256(const struct engine *engine) { return engine->weights_sha256; }

status_t engine_plan_text(const struct engine *engine, char **ret, struct err *e) {
    struct bytes text;
    bytes_init(&text, 16 << 20);
    status_t st = plan_print(engine->train, false, &text, e);
    if (st == ST_OK)
        *ret = bytes_take(&text);
    bytes_done(&text);
    return st;
}

struct engine *engine_close(struct engine *engine) {
    if (!engine)
        return NULL;
    engine->channel = channel_close(engine->channel);
    engine->transfers = transfers_close(engine->transfers);
    snapshot_stop(engine->snapshot);
    engine->profiler = profiler_close(engine->profiler);
    engine->train = plan_free(engine->train);
    engine->evaluate = plan_free(engine->evaluate);
    engine->graph = graph_free(engine->graph);
    collective_detach(engine->collective);
    execution_close(&engine->execution);
    engine->loader = loader_close(engine->loader);       /* from whose memory the device uploads */
    engine->snapshot = snapshot_close(engine->snapshot); /* into whose memory it downloads */
    arena_close(&engine->arena);
    engine->kernels = kernels_close(engine->kernels);
    engine->source = source_close(engine->source);
    for (int i = 0; i < BATCH_INPUTS; i++)
        free(engine->evaluated.of[i]);
    free(engine->metrics);
    free(engine->norm_names);
    free(engine->norms);
    if (engine->statm_fd >= 0)
        close(engine->statm_fd);
    free(engine);
    return NULL;
}
