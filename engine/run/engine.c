/* Opening an engine:
 *
 *   1. engine_prepare: data, kernels, plans, arena
 *   2. load_state: a resume checkpoint, or initial values, or init_from's weights
 *   3. loader and snapshot
 *   4. compare_ranks: every rank sends what must be equal on all (numerics id, cut of a step, step, data, plans); if
 *      any differs, all ranks fail with the same sentence
 *   5. data queue
 *
 * Every failure, also one during the run, aborts the collective, so that all ranks end at once. Closing goes in
 * reverse order: the threads that use a buffer end before the buffer is freed. */
#include "engine/run/engine.h"

#include "base/alloc.h"
#include "engine/data/loader.h"
#include "engine/pretrained/pretrained.h"
#include "engine/run/data_queue.h"
#include "engine/run/engine_state.h"
#include "engine/run/host_memory.h"
#include "engine/run/initial.h"
#include "engine/run/prepare.h"
#include "engine/run/profiler.h"
#include "engine/run/snapshot.h"
#include "engine/run/train.h"
#include "engine/run/transfers.h"
#include "engine/run/weights.h"

#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What must be equal on all ranks. */
struct identity {
    char computes[KERNELS_NUMERICS_ID_BYTES + ENGINE_FAST_NOTE_BYTES + 96]; /* numerics id, cut of a step, step */
    char data[80];                                                          /* SHA-256 of the data */
    uint8_t plans[PLAN_SAMPLE][SHA256_BYTES];                               /* gang_plan.h */
};

static void progress(void *ctx) { engine_progress(ctx); }

enum engine_outcome engine_outcome_of(status_t st) {
    switch (st) {
    case ST_OK: return ENGINE_FINISHED;
    case ST_INVALID_ARGUMENT:
    case ST_UNIMPLEMENTED: return ENGINE_BAD_SPEC;
    case ST_NOT_FOUND:
    case ST_PERMISSION_DENIED:
    case ST_FAILED_PRECONDITION: return ENGINE_HOST_FAULT;
    case ST_ABORTED: return ENGINE_CHECKPOINT_UNREADABLE;
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

struct pretrained_load {
    struct engine *engine;
    struct pretrained *from;
};

static status_t pretrained_source(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    const struct pretrained_load *load = ctx;
    engine_progress(load->engine);
    return pretrained_read(load->from, load->engine->graph->parameters[parameter].name, first, count, data, e);
}

/* train.init_from: the weights of a checkpoint or of a Hugging Face folder, and nothing else. */
static status_t load_pretrained(struct engine *engine, struct err *e) {
    const struct pretrained_options options = { .roots = engine->config.train.init_roots,
                                                .progress = progress,
                                                .ctx = engine };
    CLEANUP(pretrained_closep) struct pretrained *from = NULL;
    struct err why = { "" };
    status_t st = pretrained_open(engine->config.train.init_from, &options, &from, &why);
    if (st == ST_OK)
        st = pretrained_check(from, &engine->config.model, engine->graph, &why);
    struct pretrained_load load = { engine, from };
    if (st == ST_OK)
        st = weights_fill(&engine->execution, engine->train, pretrained_source, &load, &why);
    if (engine->config.train.init_checkpoint)
        st = snapshot_read_status(st);
    /* Bad bytes in these files are an error of the spec: DATA_LOSS would mean a bad resume checkpoint. */
    return st == ST_OK ? ST_OK
                       : err_set(e, st == ST_DATA_LOSS ? ST_INVALID_ARGUMENT : st, "train.init_from: %s", why.msg);
}

static status_t load_state(struct engine *engine, struct err *e) {
    const struct engine_train *t = &engine->config.train;
    engine->training.decision.scale = t->precision == ENGINE_FP16 ? t->loss_scale.initial : 1;
    if (engine->config.checkpoint.resume_directory)
        return snapshot_restore(engine, e);
    if (t->init_from)
        TRY(load_pretrained(engine, e));
    else
        TRY(weights_fill(&engine->execution, engine->train, initial_source, engine, e));
    return weights_start_average(&engine->execution, engine->train, e);
}

static status_t compare_identity(const struct engine *engine, const struct identity *mine, int r,
                                 const struct identity *other, struct err *e) {
    if (memcmp(other->computes, mine->computes, sizeof mine->computes) != 0)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "rank %d runs \"%s\", rank %d runs \"%s\": all ranks of a gang must run the same", engine->rank,
                       mine->computes, r, other->computes);
    if (memcmp(other->data, mine->data, sizeof mine->data) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "data: rank %d reads other data (%.12s) than rank %d (%.12s)", r,
                       other->data, engine->rank, mine->data);
    if (memcmp(other->plans, mine->plans, sizeof mine->plans) != 0)
        return err_set(e, ST_INTERNAL,
                       "rank %d plans another step than rank %d: their plans are not the same but for what each owns",
                       r, engine->rank);
    return ST_OK;
}

/* All ranks must run the same build on the same data, from the same step. */
static status_t compare_ranks(struct engine *engine, struct err *e) {
    struct identity mine = { 0 };
    CLEANUP(freep) struct identity *all = alloc_zeroed((size_t)engine->world_size, sizeof *all);
    const struct engine_train *t = &engine->config.train;
    snprintf(mine.computes, sizeof mine.computes, "%s, micro_batch %d, lanes %d, recompute %d, at step %lld",
             engine->numerics_id, t->micro_batch, t->lanes, (int)t->recompute, (long long)engine_steps_done(engine));
    snprintf(mine.data, sizeof mine.data, "%s", source_info(engine->source)->sha256);
    memcpy(mine.plans, engine->plan_digest, sizeof mine.plans);
    TRY(collective_all_gather(engine->collective, COLLECTIVE_CONTROL, &mine, sizeof mine, all, e));
    status_t st = ST_OK;
    for (int r = 0; r < engine->world_size && st == ST_OK; r++)
        st = compare_identity(engine, &mine, r, &all[r], e);
    /* All ranks find the same difference. The barrier keeps a rank from disconnecting, which would abort the others,
     * before all have found it. */
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
    TRY(train_start(engine, e));
    TRY(engine_open_loader(engine, e));
    TRY(snapshot_open(engine, &engine->snapshot, e));
    TRY(compare_ranks(engine, e));
    const struct plan *plans[ENGINE_PLANS];
    const int n = engine_plans(engine, plans);
    if (engine->world_size > 1)
        TRY(data_queue_open(engine->collective, plans, n, &engine->data_queue, e));
    engine->execution.data_queue = engine->data_queue;
    if (collective_deferred(engine->collective))
        TRY(wait_clock_open(engine->kernels, plans, n, &engine->execution.wait_clock, e));
    return ST_OK;
}

status_t engine_open(const struct engine_config *config, struct collective *collective,
                     const struct engine_hooks *hooks, struct engine **ret, struct err *e) {
    CLEANUP(engine_closep) struct engine *engine = alloc_zeroed(1, sizeof *engine);
    engine->config = *config;
    engine->hooks = hooks ? *hooks : (struct engine_hooks){ 0 };
    engine->collective = collective;
    engine->rank = collective_rank(collective);
    engine->world_size = collective_world_size(collective);
    atomic_store(&engine->threads.requested, config->threads);
    omp_set_num_threads(config->threads); /* for the loops of the engine and the kernels on this thread */
    engine->metrics.statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    struct err mine = { "" };
    status_t st = open_parts(engine, &mine);
    if (st != ST_OK)
        return collective_fail(collective, st, &mine, e);
    if (engine->hooks.joined)
        engine->hooks.joined(engine->hooks.ctx, engine_steps_done(engine), engine->numerics_id);
    *ret = take_ptr(&engine);
    return ST_OK;
}

static status_t final_checkpoint(struct engine *engine, enum engine_outcome *ret_failed, struct err *e) {
    if (!engine->snapshot)
        return ST_OK;
    int64_t stall_ns;
    *ret_failed = ENGINE_CHECKPOINT_WRITE;
    /* The digests of the final one are exchanged by all ranks at once, and a rank may keep an older one for minutes. */
    TRY(snapshot_wait_all(engine->snapshot, e));
    status_ignore(snapshot_wait(engine->snapshot, NULL)); /* a notice has reported an older one's failure */
    TRY(snapshot_take(engine->snapshot, true, &stall_ns, e));
    TRY(snapshot_wait_all(engine->snapshot, e)); /* before the barrier, which has a time limit */
    return snapshot_wait(engine->snapshot, e);
}

status_t engine_run(struct engine *engine, enum engine_outcome *ret, struct err *e) {
    struct err mine = { "" };
    bool stopped = false;
    enum engine_outcome failed = ENGINE_INTERNAL;
    status_t st = train_run(engine, &stopped, &mine);
    if (st == ST_OK) {
        st = final_checkpoint(engine, &failed, &mine);
        if (st == ST_OK)
            st = collective_barrier(engine->collective, COLLECTIVE_CONTROL, &mine);
    }
    if (st == ST_OK) {
        *ret = stopped ? ENGINE_STOPPED : ENGINE_FINISHED;
        return ST_OK;
    }
    st = collective_fail(engine->collective, st, &mine, e); /* ends all ranks of the gang at once */
    *ret = engine_outcome_of(st);
    if (failed == ENGINE_CHECKPOINT_WRITE && *ret != ENGINE_PEER_LOST)
        *ret = failed;
    return st;
}

void engine_stop_request(struct engine *engine) { atomic_store(&engine->stop, true); }

void engine_set_threads(struct engine *engine, int threads) { atomic_store(&engine->threads.requested, threads); }

void engine_checkpoint_committed(struct engine *engine, int64_t step) {
    if (engine->snapshot)
        snapshot_committed(engine->snapshot, step);
}

int64_t engine_step(const struct engine *engine) { return engine_steps_done(engine); }
size_t engine_arena_bytes(const struct engine *engine) { return engine->arena.bytes; }

double engine_peak_flops(const struct engine *engine) { return engine->config.peak_flops; }

status_t engine_memory(const struct engine *engine, struct engine_memory *ret, struct err *e) {
    struct host_memory_used used;
    TRY(host_memory_measure(&used, e));
    *ret = (struct engine_memory){ engine->host_bytes, used.peak_bytes, used.anonymous_bytes, used.file_bytes };
    return ST_OK;
}

const char *engine_weights_sha256(const struct engine *engine) { return engine->training.weights_sha256; }

status_t engine_plan_text(const struct engine *engine, char **ret, struct err *e) {
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, 16 << 20);
    TRY(plan_print(engine->train, false, &text, e));
    *ret = bytes_take(&text);
    return ST_OK;
}

struct engine *engine_close(struct engine *engine) {
    if (!engine)
        return NULL;
    engine->data_queue = data_queue_close(engine->data_queue);
    engine->transfers = transfers_close(engine->transfers);
    snapshot_stop(engine->snapshot);
    engine->profiler = profiler_close(engine->profiler);
    engine->train = plan_free(engine->train);
    engine->evaluate = plan_free(engine->evaluate);
    engine->averages = plan_free(engine->averages);
    engine->graph = graph_free(engine->graph);
    collective_detach(engine->collective);
    execution_close(&engine->execution);
    engine->loader = loader_close(engine->loader);       /* the device uploads from its memory */
    engine->snapshot = snapshot_close(engine->snapshot); /* the device downloads to its memory */
    arena_close(&engine->arena);
    engine->kernels = kernels_close(engine->kernels);
    engine->source = source_close(engine->source);
    for (int i = 0; i < BATCH_INPUTS; i++)
        free(engine->scratch_batch.of[i]);
    free(engine->metrics.row);
    free(engine->metrics.norm_names);
    free(engine->metrics.mixed_names);
    free(engine->metrics.norms);
    if (engine->metrics.statm_fd >= 0)
        close(engine->metrics.statm_fd);
    free(engine);
    return NULL;
}
