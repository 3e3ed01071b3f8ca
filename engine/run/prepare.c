/* From a configuration to allocated memory:
 *
 *   1. check the configuration, read the data
 *   2. open the kernels, with the tuning cache of the checkpoint that a run resumes from
 *   3. build the model's graph for this micro-batch, then the plans of all ranks. Every rank builds all of them and
 *      verifies them together (plan/verify/verify.h), then keeps its own: a plan that could deadlock or read a wrong
 *      byte fails here, on every rank
 *   4. compare the plan's bytes with memory_bytes; if they exceed it, name the largest micro-batch that fits
 *   5. allocate the arena and what steps need beside it; on a deferred device, warm up; open the transfers */
#include "engine/run/prepare.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "engine/data/loader.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/verify/verify.h"
#include "engine/run/execute.h"
#include "engine/run/job_model.h"
#include "engine/run/profiler.h"
#include "engine/run/snapshot.h"
#include "engine/run/transfers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void progress(void *ctx) { engine_progress(ctx); }

static status_t check_config(const struct engine_config *c, int world_size, struct err *e) {
    const struct engine_train *t = &c->train;
    if (!t->optimizer.kind)
        return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer: an optimizer is required");
    TRY(optimizer_check(&t->optimizer, e));
    if (t->steps < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "train.steps: %lld is less than 1", (long long)t->steps);
    if (t->micro_batch < 1 || t->global_batch < 1 || t->global_batch % t->micro_batch)
        return err_set(e, ST_INVALID_ARGUMENT, "train.global_batch: %d is not a multiple of micro_batch %d",
                       t->global_batch, t->micro_batch);
    if (t->schedule.warmup_steps < 0 || t->schedule.warmup_steps > t->steps)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "train.learning_rate_schedule: warm-up of %lld steps is not between 0 and train.steps %lld",
                       (long long)t->schedule.warmup_steps, (long long)t->steps);
    if (engine_ranks(&c->layout) != world_size)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel: data %d x pipeline %d does not equal the number of ranks, %d",
                       engine_degree(c->layout.data), engine_degree(c->layout.pipeline), world_size);
    return ST_OK;
}

static status_t open_data(struct engine *engine, struct err *e) {
    struct engine_config *c = &engine->config;
    TRY(job_model_source(c, progress, engine, &engine->source, e));
    const struct source_info *info = source_info(engine->source);
    for (int i = 0; i < info->n_inputs; i++) {
        int64_t n = source_elements(engine->source, info->inputs[i].input) * engine->config.train.micro_batch;
        engine->scratch_batch.of[info->inputs[i].input] = calloc((size_t)n, sizeof(float));
        if (!engine->scratch_batch.of[info->inputs[i].input])
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a micro-batch");
    }
    return ST_OK;
}

/* Builds the plans of all ranks, verifies them together, and keeps this rank's. */
static status_t build_plan(struct engine *engine, struct plan_layout layout, struct plan **ret, struct err *e) {
    struct plan *plans[LIMIT_WORLD_SIZE] = { NULL };
    status_t st = ST_OK;
    for (int r = 0; r < engine->world_size && st == ST_OK; r++) {
        layout.rank = r;
        st = plan_build(engine->graph, &layout, &plans[r], e);
    }
    if (st == ST_OK)
        st = plan_verify((const struct plan *const *)plans, engine->world_size, e) == ST_OK ? ST_OK : ST_INTERNAL;
    if (st == ST_OK)
        *ret = take_ptr(&plans[engine->rank]);
    for (int r = 0; r < engine->world_size; r++)
        plan_free(plans[r]);
    return st;
}

static status_t build_plans(struct engine *engine, struct job_model *model, struct err *e) {
    const struct engine_config *c = &engine->config;
    size_t workspace;
    TRY(job_model_build(model, c->train.micro_batch, &engine->graph, &workspace, e));
    struct plan_layout layout = job_model_layout(c, workspace);
    TRY(build_plan(engine, layout, &engine->train, e));
    if (source_info(engine->source)->samples[SOURCE_VALIDATION] > 0 && c->train.eval.batches > 0) {
        layout.kind = PLAN_EVALUATE;
        layout.micro_batches *= c->train.eval.batches;
        TRY(build_plan(engine, layout, &engine->evaluate, e));
    }
    const struct plan *plans[2];
    size_t bytes = arena_bytes(plans, engine_plans(engine, plans));
    int largest = 0;
    bool larger = false;
    if (c->memory_bytes <= 0 || bytes <= (size_t)c->memory_bytes)
        return ST_OK;
    if (job_model_max_micro_batch(model, c, (size_t)c->memory_bytes, &largest, &larger, NULL) == ST_OK && largest > 0 &&
        largest < c->train.micro_batch)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "train.micro_batch: %d needs %zu bytes on rank %d, more than resources.memory_bytes %lld; the "
                       "largest that fits is %d",
                       c->train.micro_batch, bytes, engine->rank, (long long)c->memory_bytes, largest);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "resources.memory_bytes: rank %d needs %zu bytes, more than %lld, and no smaller micro-batch fits",
                   engine->rank, bytes, (long long)c->memory_bytes);
}

/* Under `numerics: fast` the number of data ranks changes the bits, so it is part of the id. */
static void name_numerics(struct engine *engine) {
    const struct engine_config *c = &engine->config;
    char *id = engine->numerics_id;
    kernels_numerics_id(engine->kernels, id, KERNELS_NUMERICS_ID_BYTES);
    if (c->train.numerics == ENGINE_NUMERICS_FAST)
        snprintf(id + strlen(id), ENGINE_FAST_NOTE_BYTES, ", fast over %d", engine_degree(c->layout.data));
}

/* Peak FLOP/s for `mfu`. On a CPU the caller measures it. */
static void set_peak_flops(struct engine *engine) {
    struct engine_config *c = &engine->config;
    if (c->peak_flops <= 0)
        c->peak_flops = engine->kernels->peak_flops;
    if (c->peak_flops <= 0 && engine->rank == 0 && strcmp(c->device, "cpu") != 0)
        engine_notice(engine, "mfu_unknown", 0, "mfu is not reported: peak FLOP/s of \"%s\" is unknown",
                      engine->numerics_id);
}

/* Lets the collective move device memory from device to device. */
static status_t attach_device(struct engine *engine, struct err *e) {
    const struct engine_config *c = &engine->config;
    const struct collective_device device = { .kernels = engine->kernels,
                                              .data = engine_degree(c->layout.data),
                                              .native = c->train.numerics == ENGINE_NUMERICS_FAST,
                                              .tuning = c->tuning };
    return strcmp(c->device, "cpu") == 0 ? ST_OK : collective_attach(engine->collective, &device, e);
}

/* A resumed run uses the tuning cache of its checkpoint, so that products are computed as before. CPU kernels have
 * none. */
static status_t open_kernels(struct engine *engine, struct err *e) {
    const struct engine_config *c = &engine->config;
    CLEANUP(freep) char *tuning_cache = NULL;
    if (c->checkpoint.resume_directory && strcmp(c->device, "cpu") != 0)
        TRY(snapshot_tuning_cache(engine, &tuning_cache, e));
    const status_t st = job_model_kernels(c, tuning_cache, &engine->kernels, e);
    return st == ST_DATA_LOSS ? err_prefix(e, st, "the checkpoint '%s': ", c->checkpoint.resume_directory) : st;
}

static status_t build(struct engine *engine, struct err *e) {
    struct engine_config *c = &engine->config;
    CLEANUP(job_model_closep) struct job_model *model = NULL;
    TRY(open_kernels(engine, e));
    TRY(job_model_open(c, engine->source, engine->kernels, &model, e));
    name_numerics(engine);
    set_peak_flops(engine);
    TRY(attach_device(engine, e));
    return build_plans(engine, model, e);
}

static void open_metrics(struct engine *engine) {
    const int n = engine->graph->n_parameters;
    engine->metrics.row = alloc_zeroed((size_t)n + ENGINE_METRICS, sizeof *engine->metrics.row);
    engine->metrics.norm_names = alloc_zeroed((size_t)n, sizeof *engine->metrics.norm_names);
    engine->metrics.norms = alloc_zeroed((size_t)engine->train->norm_chunks + 1, sizeof *engine->metrics.norms);
    for (int i = 0; i < n; i++)
        snprintf(engine->metrics.norm_names[i], sizeof engine->metrics.norm_names[i], "grad_norm/%.*s",
                 ENGINE_METRIC_NAME - 12, engine->graph->parameters[i].name);
    for (int r = 0; r < engine->graph->n_reports; r++)
        snprintf(engine->metrics.report_names[r], sizeof engine->metrics.report_names[r], "validation_%s",
                 engine->graph->report[r].name);
}

/* A library that loads a kernel at its first call waits until the device is idle. If a receive is posted by then, whose
 * sender waits for this rank, that is a deadlock. The warm-up therefore calls every kernel of a micro-batch before the
 * first transfer is posted. Products that add are first called for the second micro-batch and may load then: in no
 * schedule does a receive that is posted by then wait for what this stage has yet to compute (test_device_ranks.c). */
static status_t open_transfers(struct engine *engine, const struct plan *const *plans, int n, struct err *e) {
    if (engine->kernels->deferred)
        TRY(execute_warm_up(&engine->execution, engine->train, e));
    return transfers_open(engine->collective, plans, n, &engine->transfers, e);
}

static status_t open_memory(struct engine *engine, struct err *e) {
    const struct plan *plans[2];
    const int n = engine_plans(engine, plans);
    struct execution *x = &engine->execution;
    TRY(arena_open(&engine->arena, engine->kernels, plans, n, e));
    TRY(execution_open(x, engine->kernels, &engine->arena, plans, n, e));
    x->seed = (uint64_t)engine->config.train.seed;
    x->progress = progress;
    x->progress_ctx = engine;
    if (engine->train->layout.stages > 1)
        TRY(open_transfers(engine, plans, n, e));
    x->transfers = engine->transfers;
    const struct engine_profile *p = &engine->config.profile;
    if (p->from > 0)
        TRY(profiler_open(engine->train, p->to - p->from + 1, engine->kernels, &engine->profiler, e));
    open_metrics(engine);
    return ST_OK;
}

static status_t host_memory_make(void *kernels, size_t bytes, void **ret, struct err *e) {
    const struct kernels *k = kernels;
    return k->host_memory_new(k, bytes, ret, e);
}

static void host_memory_free(void *kernels, void *p) {
    const struct kernels *k = kernels;
    k->host_memory_free(k, p);
}

status_t engine_open_loader(struct engine *engine, struct err *e) {
    const struct engine_train *t = &engine->config.train;
    const struct plan *plan = engine->train;
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    CLEANUP(freep)
    int *micro_batches = alloc_zeroed((size_t)plan_own_micro_batches(&plan->layout) + 1, sizeof *micro_batches);
    int n = 0;
    unsigned inputs = 0;
    for (int i = 0; i < compute->n; i++)
        if (compute->items[i].kind == INSTRUCTION_LOAD)
            micro_batches[n++] = compute->items[i].micro_batch;
    for (int b = 0; b < plan->graph->n_batch; b++)
        if (plan_loads(plan, plan->graph->batch[b]))
            inputs |= 1u << plan->graph->tensors[plan->graph->batch[b]].input;
    if (n == 0 || inputs == 0)
        return ST_OK;
    struct loader_config config = { .source = engine->source,
                                    .seed = t->seed,
                                    .global_batch = t->global_batch,
                                    .micro_batch = t->micro_batch,
                                    .micro_batches = micro_batches,
                                    .n_micro_batches = n,
                                    .inputs = inputs,
                                    .first_step = engine_steps_done(engine),
                                    .steps = t->steps };
    if (engine->kernels->deferred) { /* the device reads a step's batches until the step has been taken */
        config.valid = CONTROL_STEPS * n;
        config.memory = (struct loader_memory){ host_memory_make, host_memory_free, engine->kernels };
    }
    return loader_open(&config, &engine->loader, e);
}

status_t engine_prepare(struct engine *engine, struct err *e) {
    TRY(check_config(&engine->config, engine->world_size, e));
    TRY(open_data(engine, e));
    TRY(build(engine, e));
    return open_memory(engine, e);
}
