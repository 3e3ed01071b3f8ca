/* From a configuration to allocated memory:
 *
 *   1. check the configuration, read the data
 *   2. open the kernels, with the tuning cache of the checkpoint that a run resumes from
 *   3. build the model's graph for this micro-batch, then the plans of this rank, proved together with those of other
 *      ranks (gang_plan.h): a plan that could deadlock or read a wrong byte fails here
 *   4. compare the rank's bytes with memory_bytes; if they exceed it, name the largest micro-batch that fits
 *   5. allocate the arena and what steps need beside it; on a deferred device, warm up; open the transfers */
#include "engine/run/prepare.h"

#include "base/alloc.h"
#include "engine/data/loader.h"
#include "engine/run/execute.h"
#include "engine/run/gang_plan.h"
#include "engine/run/host_memory.h"
#include "engine/run/job_model.h"
#include "engine/run/profiler.h"
#include "engine/run/snapshot.h"
#include "engine/run/transfers.h"

#include <malloc.h>
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

static status_t build_plan(struct engine *engine, struct plan_layout layout, struct plan **ret, struct err *e) {
    const struct gang_plan_progress reports = { progress, engine };
    layout.rank = engine->rank;
    return gang_plan_make(engine->graph, &layout, &reports, ret, engine->plan_digest[layout.kind], e);
}

/* The bytes of this rank that a limit covers. */
static size_t weigh(struct engine *engine, const struct job_model *model) {
    const struct host_memory_rule *rule = job_model_host(model);
    const struct plan *plans[ENGINE_PLANS];
    const size_t arena = arena_bytes(plans, engine_plans(engine, plans));
    struct host_memory host = { 0 };
    host_memory_of_rank(rule, engine->train, &host);
    engine->host_bytes = host_memory_bytes(&host) + (rule->limited ? arena : 0);
    return rule->limited ? engine->host_bytes : arena;
}

static status_t check_memory(struct engine *engine, struct job_model *model, struct err *e) {
    const struct engine_config *c = &engine->config;
    const size_t bytes = weigh(engine, model);
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

/* Rank 0 chooses and sends its choice, since that takes the plans of a column for each size. What cannot be planned is
 * reported by all ranks alike, when they build their own plans. */
static status_t choose_buckets(struct engine *engine, struct err *e) {
    const struct collective_group world = collective_world(engine->collective);
    struct bucket_choice choice = { .bytes = 0 };
    if (engine->config.bucket_bytes > 0)
        return ST_OK;
    if (engine->rank == 0 &&
        job_model_choose_buckets(&engine->config, engine->graph, progress, engine, &choice, NULL) != ST_OK)
        choice.bytes = BUCKET_BYTES_DEFAULT;
    uint64_t bytes = (uint64_t)choice.bytes;
    TRY(collective_or(engine->collective, COLLECTIVE_CONTROL, &world, &bytes, 1, e));
    engine->config.bucket_bytes = (int64_t)bytes;
    return ST_OK;
}

static status_t build_plans(struct engine *engine, struct job_model *model, struct err *e) {
    const struct engine_config *c = &engine->config;
    size_t workspace;
    TRY(job_model_build(model, c->train.micro_batch, &engine->graph, &workspace, e));
    TRY(choose_buckets(engine, e));
    struct plan_layout layout = job_model_layout(c, workspace);
    TRY(build_plan(engine, layout, &engine->train, e));
    if (source_info(engine->source)->samples[SOURCE_VALIDATION] > 0) {
        layout.kind = PLAN_EVALUATE;
        TRY(build_plan(engine, layout, &engine->evaluate, e));
    }
    if (engine->evaluate && c->train.ema.decay > 0 && c->train.ema.evaluate) {
        layout.kind = PLAN_AVERAGE;
        TRY(build_plan(engine, layout, &engine->averages, e));
    }
    return check_memory(engine, model, e);
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

static void name_mixed(struct engine *engine) {
    const struct source_info *info = source_info(engine->source);
    engine->metrics.mixed_names = alloc_zeroed((size_t)info->n_mixed + 1, sizeof *engine->metrics.mixed_names);
    for (int s = 0; s < info->n_mixed; s++) {
        struct engine_mixed_names *names = &engine->metrics.mixed_names[s];
        const char *name = info->mixed[s].name;
        snprintf(names->samples, sizeof names->samples, "samples/%s", name);
        snprintf(names->loss, sizeof names->loss, "validation_loss/%s", name);
        snprintf(names->average_loss, sizeof names->average_loss, "ema_validation_loss/%s", name);
    }
}

static void open_metrics(struct engine *engine) {
    const int n = engine->graph->n_parameters, mixed = source_info(engine->source)->n_mixed;
    engine->metrics.row = alloc_zeroed((size_t)n + ENGINE_METRICS + 3 * (size_t)mixed, sizeof *engine->metrics.row);
    name_mixed(engine);
    engine->metrics.norm_names = alloc_zeroed((size_t)n, sizeof *engine->metrics.norm_names);
    engine->metrics.norms = alloc_zeroed((size_t)engine->train->norm_chunks + 1, sizeof *engine->metrics.norms);
    for (int i = 0; i < n; i++)
        snprintf(engine->metrics.norm_names[i], sizeof engine->metrics.norm_names[i], "grad_norm/%.*s",
                 ENGINE_METRIC_NAME - 12, engine->graph->parameters[i].name);
    for (int r = 0; r < engine->graph->n_reports; r++) {
        snprintf(engine->metrics.report_names[r], ENGINE_METRIC_NAME, "validation_%s", engine->graph->report[r].name);
        snprintf(engine->metrics.average_names[r], ENGINE_METRIC_NAME, "ema_validation_%s",
                 engine->graph->report[r].name);
    }
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
    const struct plan *plans[ENGINE_PLANS];
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
                                    .first_sample = engine_first_sample(engine, engine_steps_done(engine)),
                                    .steps = t->steps,
                                    .threads = engine->config.workers,
                                    .ahead = engine->config.prefetch };
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
    malloc_trim(0); /* what reading the data and verifying the plans needed goes back before the arena is allocated */
    return open_memory(engine, e);
}
