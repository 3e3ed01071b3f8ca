#include "executor/engine/run/engine.h"

#include "base/limits.h"
#include "executor/engine/graph/op.h"
#include "executor/engine/model/gpt.h"
#include "executor/engine/plan/verify.h"
#include "executor/engine/run/initial.h"
#include "executor/engine/run/state.h"

#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Small enough that the first bucket leaves early, large enough that a message's fixed cost is lost in it. Chosen, not
 * measured against other sizes. */
static const int64_t BUCKET_BYTES = 4 << 20;

/* What ranks must agree on, as each brings it to the meeting. */
struct identity {
    char computes[KERNELS_NUMERICS_ID_BYTES + 32]; /* numerics id and step */
    char data[80];                                 /* the text's SHA-256 */
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
    case ST_PERMISSION_DENIED: return ENGINE_BAD_SPEC;
    case ST_UNAVAILABLE:
    case ST_DEADLINE_EXCEEDED:
    case ST_CANCELLED: return ENGINE_PEER_LOST;
    case ST_DATA_LOSS: return ENGINE_CHECKPOINT_BAD;
    case ST_OUT_OF_RANGE: return ENGINE_NUMERIC;
    default: return ENGINE_INTERNAL;
    }
}

static status_t check_config(const struct engine_config *c, int world_size, struct err *e) {
    const struct engine_train *t = &c->train;
    if (t->steps < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "train.steps: %lld is less than 1", (long long)t->steps);
    if (t->micro_batch < 1 || t->global_batch < 1 || t->global_batch % t->micro_batch)
        return err_set(e, ST_INVALID_ARGUMENT, "train.global_batch: %d is not a multiple of micro_batch %d",
                       t->global_batch, t->micro_batch);
    if (t->schedule.warmup_steps < 0 || t->schedule.warmup_steps > t->steps)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "train.learning_rate_schedule: %lld warm-up steps are not within %lld steps",
                       (long long)t->schedule.warmup_steps, (long long)t->steps);
    if (c->data_degree != world_size)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel.data: %d is not the number of ranks %d", c->data_degree,
                       world_size);
    return ST_OK;
}

static status_t open_data(struct engine *engine, struct err *e) {
    const struct engine_data *d = &engine->config.data;
    struct corpus_config config = { .files = d->files,
                                    .n_files = d->n_files,
                                    .kind = d->tokenizer == ENGINE_TOKENIZER_CHAR ? TOKENIZER_CHAR : TOKENIZER_BYTE,
                                    .validation_fraction = d->validation_fraction,
                                    .progress = progress,
                                    .ctx = engine };
    TRY(corpus_open(&config, &engine->corpus, e));
    int *vocabulary = &engine->config.model.vocabulary, own = tokenizer_vocabulary(corpus_tokenizer(engine->corpus));
    if (*vocabulary == 0)
        *vocabulary = own;
    if (*vocabulary < own)
        return err_set(e, ST_INVALID_ARGUMENT, "model.gpt.vocabulary: %d is less than the tokenizer's %d", *vocabulary,
                       own);
    return ST_OK;
}

static size_t workspace_bytes(const struct graph *g, const struct kernels *k) {
    size_t most = 0;
    for (int i = 0; i < g->n_ops; i++) {
        size_t bytes = g->ops[i].kind->workspace ? g->ops[i].kind->workspace(k, g, &g->ops[i]) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Builds every rank's plan, has them verified together, and keeps this rank's. */
static status_t build_plan(struct engine *engine, struct plan_layout layout, struct plan **ret, struct err *e) {
    struct plan *plans[LIMIT_WORLD_SIZE] = { NULL };
    status_t st = ST_OK;
    for (int r = 0; r < engine->world_size && st == ST_OK; r++) {
        layout.rank = r;
        st = plan_build(engine->graph, &layout, &plans[r], e);
    }
    if (st == ST_OK)
        st = plan_verify((const struct plan *const *)plans, engine->world_size, e);
    if (st == ST_OK)
        *ret = take_ptr(&plans[engine->rank]);
    for (int r = 0; r < engine->world_size; r++)
        plan_free(plans[r]);
    return st;
}

static status_t build_plans(struct engine *engine, struct err *e) {
    const struct engine_config *c = &engine->config;
    struct gpt_shape shape = { .layers = c->model.layers,
                               .heads = c->model.heads,
                               .width = c->model.width,
                               .context = c->model.context,
                               .vocabulary = c->model.vocabulary,
                               .dropout = c->model.dropout };
    TRY(gpt_build(&shape, c->train.micro_batch, &engine->graph, e));
    TRY(kernels_open(&(struct kernels_config){ .device = c->device, .threads = c->threads }, &engine->kernels, e));
    kernels_numerics_id(engine->kernels, engine->numerics_id, sizeof engine->numerics_id);
    struct plan_layout layout = {
        .kind = PLAN_TRAIN,
        .world_size = engine->world_size,
        .lanes = c->train.lanes,
        .micro_batches = c->train.global_batch / c->train.micro_batch,
        .reduce = c->train.reduce == ENGINE_REDUCE_STEP ? PLAN_REDUCE_STEP : PLAN_REDUCE_MICRO_BATCH,
        .bucket_bytes = c->bucket_bytes > 0 ? c->bucket_bytes : BUCKET_BYTES,
        .workspace_bytes = workspace_bytes(engine->graph, engine->kernels),
    };
    TRY(build_plan(engine, layout, &engine->train, e));
    if (corpus_tokens(engine->corpus, CORPUS_VALIDATION) <= c->model.context || c->train.eval.batches < 1)
        return ST_OK;
    layout.kind = PLAN_EVALUATE;
    layout.micro_batches *= c->train.eval.batches;
    return build_plan(engine, layout, &engine->evaluate, e);
}

static status_t open_memory(struct engine *engine, struct err *e) {
    const struct plan *plans[] = { engine->train, engine->evaluate };
    TRY(arena_open(&engine->arena, plans, engine->evaluate ? 2 : 1, e));
    struct execution *x = &engine->execution;
    execution_attach(x, &engine->arena, engine->train);
    int most = engine->train->layout.micro_batches;
    if (engine->evaluate && engine->evaluate->layout.micro_batches > most)
        most = engine->evaluate->layout.micro_batches;
    x->record = calloc(1, step_record_bytes(most));
    x->records = calloc((size_t)engine->world_size, step_record_bytes(most));
    if (!x->record || !x->records)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the step records");
    x->kernels = engine->kernels;
    x->seed = (uint64_t)engine->config.train.seed;
    x->progress = progress;
    x->progress_ctx = engine;
    return ST_OK;
}

static status_t open_loader(struct engine *engine, struct err *e) {
    const struct engine_train *t = &engine->config.train;
    const struct plan *plan = engine->train;
    int n = 0;
    engine->micro_batches = calloc((size_t)plan->layout.micro_batches, sizeof *engine->micro_batches);
    if (!engine->micro_batches)
        abort();
    for (int i = 0; i < plan->compute.n; i++)
        if (plan->compute.items[i].kind == INSTRUCTION_LOAD)
            engine->micro_batches[n++] = plan->compute.items[i].micro_batch;
    struct loader_config config = { .corpus = engine->corpus,
                                    .seed = t->seed,
                                    .context = engine->config.model.context,
                                    .global_batch = t->global_batch,
                                    .micro_batch = t->micro_batch,
                                    .micro_batches = engine->micro_batches,
                                    .n_micro_batches = n,
                                    .first_step = engine_step(engine),
                                    .steps = t->steps };
    return loader_open(&config, &engine->loader, e);
}

static status_t load_state(struct engine *engine, struct err *e) {
    if (engine->config.checkpoint.resume_directory)
        return snapshot_restore(engine, e);
    for (int i = 0; i < engine->graph->n_parameters; i++) {
        initial_parameter(&engine->graph->parameters[i], i, engine->config.train.seed,
                          engine->execution.parameters + engine->train->parameter_begin[i]);
        engine_progress(engine);
    }
    return ST_OK;
}

/* All ranks compute alike on the same data and stand at the same step, or none starts. */
static status_t meet(struct engine *engine, struct err *e) {
    struct identity mine = { 0 };
    CLEANUP(freep) struct identity *all = calloc((size_t)engine->world_size, sizeof *all);
    if (!all)
        abort();
    snprintf(mine.computes, sizeof mine.computes, "%s at step %lld", engine->numerics_id,
             (long long)engine_step(engine));
    snprintf(mine.data, sizeof mine.data, "%s", corpus_sha256(engine->corpus));
    TRY(collective_all_gather(engine->collective, COLLECTIVE_CONTROL, &mine, sizeof mine, all, e));
    for (int r = 0; engine->world_size > 1 && r < engine->world_size; r++) {
        if (memcmp(all[r].computes, mine.computes, sizeof mine.computes) != 0)
            return err_set(e, ST_FAILED_PRECONDITION, "rank %d runs \"%s\", rank %d runs \"%s\": a gang computes alike",
                           engine->rank, mine.computes, r, all[r].computes);
        if (memcmp(all[r].data, mine.data, sizeof mine.data) != 0)
            return err_set(e, ST_INVALID_ARGUMENT,
                           "data.text.files: rank %d reads another text (%.12s) than rank %d (%.12s)", r, all[r].data,
                           engine->rank, mine.data);
    }
    return ST_OK;
}

static status_t open_parts(struct engine *engine, struct err *e) {
    TRY(check_config(&engine->config, engine->world_size, e));
    TRY(open_data(engine, e));
    TRY(build_plans(engine, e));
    TRY(open_memory(engine, e));
    TRY(load_state(engine, e));
    TRY(open_loader(engine, e));
    TRY(snapshot_open(engine, &engine->snapshot, e));
    TRY(meet(engine, e));
    if (engine->world_size > 1)
        TRY(channel_open(engine->collective, &engine->channel, e));
    engine->execution.channel = engine->channel;
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
    if (st != ST_OK) {
        collective_abort(collective, mine.msg);
        return err_set(e, st, "%s", mine.msg);
    }
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
    engine->snapshot = snapshot_close(engine->snapshot);
    engine->loader = loader_close(engine->loader);
    engine->train = plan_free(engine->train);
    engine->evaluate = plan_free(engine->evaluate);
    engine->graph = graph_free(engine->graph);
    engine->kernels = kernels_close(engine->kernels);
    engine->corpus = corpus_close(engine->corpus);
    arena_close(&engine->arena);
    free(engine->execution.record);
    free(engine->execution.records);
    free(engine->micro_batches);
    if (engine->statm_fd >= 0)
        close(engine->statm_fd);
    free(engine);
    return NULL;
}
