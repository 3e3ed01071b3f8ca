/* Translates a configuration for the parts below it: kernels_config for the kernels, source_options for the data, the
 * graph for the model, plan_layout for the planner.
 *
 * Workspace depends on the kernels of a device, so a kernel table is asked for each op's need. In this order: the table
 * that the caller has open; a shape-only table that knows the device without its presence (kernels_shape_only); a CPU
 * table opened for the purpose.
 *
 * job_model_max_micro_batch tries the divisors of the global batch from the largest down, builds the graph of each and
 * asks the planner for the bytes of the largest rank. */
#include "engine/run/job_model.h"

#include "base/alloc.h"
#include "engine/graph/op.h"
#include "engine/model/model.h"
#include "engine/plan/cost/bucket_choice.h"
#include "engine/run/host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What buckets are chosen for on CPUs: ranks of some cores, eight on a host, and hosts with 10 Gbit/s. On GPUs it is
 * the device that plans assume. The figures are never measured: every rank, and a plan, must choose the same. */
static const struct plan_profile NOMINAL_CPU = {
    .name = "cpu",
    .accelerator = "cpu",
    .product_flops = { [DTYPE_F32] = 5e11, [DTYPE_BF16] = 1e12, [DTYPE_F16] = 5e11 },
    .product_reach = 0.8,
    .memory_bytes_per_second = 2e10,
    .memory_reach = 0.8,
    .node_ranks = 8,
    .intra_node = { .bytes_per_second = 4e9, .seconds = 3e-5 },
    .inter_node = { .bytes_per_second = 1.25e9, .seconds = 5e-5 },
};
static const char NOMINAL_GPU[] = "h200";

struct job_model {
    struct model_config model;
    struct model_data data;
    enum dtype element;
    const struct optimizer_kind *optimizer;
    const struct kernels *kernels; /* for workspace sizes */
    struct kernels *own;           /* the same if job_model_close must close it, else NULL */
    struct host_memory_facts facts;
    struct host_memory_rule host;
};

static enum dtype element_of(enum engine_precision p) {
    return p == ENGINE_BF16 ? DTYPE_BF16 : p == ENGINE_FP16 ? DTYPE_F16 : DTYPE_F32;
}

static enum kernels_precision precision_of(enum engine_precision p) {
    return p == ENGINE_BF16 ? KERNELS_BF16 : p == ENGINE_FP16 ? KERNELS_FP16 : KERNELS_FP32;
}

int job_model_max_threads(const struct engine_config *c) {
    const int now = c->threads > 0 ? c->threads : 1;
    return c->max_threads > now ? c->max_threads : now;
}

static struct kernels_config kernels_config_of(const struct engine_config *c) {
    struct kernels_config config = { .device = c->device,
                                     .threads = c->threads > 0 ? c->threads : 1,
                                     .max_threads = job_model_max_threads(c),
                                     .precision = precision_of(c->train.precision),
                                     .fast = c->train.numerics == ENGINE_NUMERICS_FAST };
    int end = 0;
    if (sscanf(c->device, "cuda:%d%n", &config.ordinal, &end) == 1 && c->device[end] == '\0')
        config.device = "cuda";
    return config;
}

status_t job_model_kernels(const struct engine_config *c, const char *tuning_cache, struct kernels **ret,
                           struct err *e) {
    struct kernels_config config = kernels_config_of(c);
    config.tuning_cache = tuning_cache;
    return kernels_open(&config, ret, e);
}

status_t job_model_source(const struct engine_config *c, void (*progress)(void *ctx), void *ctx, struct source **ret,
                          struct err *e) {
    struct source_options options = { .context = model_context(&c->model),
                                      .vocabulary = model_vocabulary(&c->model),
                                      .threads = c->threads,
                                      .token_cache = c->token_cache,
                                      .progress = progress,
                                      .ctx = ctx };
    return source_open(&c->data, &options, ret, e);
}

static status_t find_kernels(struct job_model *o, const struct engine_config *c, const struct kernels *open,
                             struct err *e) {
    const struct kernels_config config = kernels_config_of(c);
    o->kernels = open ? open : kernels_shape_only(&config);
    if (o->kernels)
        return ST_OK;
    TRY(kernels_open(&config, &o->own, e));
    o->kernels = o->own;
    return ST_OK;
}

static status_t open_parts(struct job_model *o, struct engine_config *c, const struct model_data *data,
                           const struct kernels *open, struct err *e) {
    o->data = *data;
    TRY(model_resolve(&c->model, &o->data, e));
    o->model = c->model;
    o->element = element_of(c->train.precision);
    o->optimizer = c->train.optimizer.kind;
    TRY(find_kernels(o, c, open, e));
    o->facts = host_memory_facts_of(c, o->kernels, 0);
    o->host = host_memory_rule_of(&o->facts);
    return ST_OK;
}

status_t job_model_open(struct engine_config *config, const struct source *source, const struct kernels *open,
                        struct job_model **ret, struct err *e) {
    const struct model_data data = model_data_of(source_info(source));
    TRY(job_model_open_shaped(config, &data, open, ret, e));
    (*ret)->facts.data_bytes = source_info(source)->memory_bytes;
    return ST_OK;
}

const struct host_memory_rule *job_model_host(const struct job_model *o) { return &o->host; }

status_t job_model_open_shaped(struct engine_config *config, const struct model_data *data, const struct kernels *open,
                               struct job_model **ret, struct err *e) {
    struct job_model *o = alloc_zeroed(1, sizeof *o);
    status_t st = open_parts(o, config, data, open, e);
    if (st != ST_OK)
        o = job_model_close(o);
    *ret = o;
    return st;
}

struct job_model *job_model_close(struct job_model *o) {
    if (!o)
        return NULL;
    kernels_close(o->own);
    free(o);
    return NULL;
}

size_t job_model_workspace(const struct kernels *k, const struct graph *g, const struct optimizer_kind *optimizer) {
    size_t max = 0;
    for (int i = 0; i < g->n_ops; i++) {
        const struct op_kind *kind = g->ops[i].kind;
        size_t bytes = kind->workspace ? kind->workspace(k, g, &g->ops[i]) : 0;
        max = bytes > max ? bytes : max;
    }
    for (int i = 0; i < g->n_parameters && optimizer; i++) {
        size_t bytes = optimizer_workspace(optimizer, k, &g->parameters[i]);
        max = bytes > max ? bytes : max;
    }
    return max;
}

status_t job_model_build(void *ctx, int micro_batch, struct graph **ret, size_t *ret_workspace, struct err *e) {
    const struct job_model *o = ctx;
    TRY(model_build(&o->model, &o->data, micro_batch, o->element, ret, e));
    *ret_workspace = job_model_workspace(o->kernels, *ret, o->optimizer);
    return ST_OK;
}

/* Everything that does not depend on the micro-batch. A recompute that is not chosen yet counts as none. */
static struct plan_layout base_layout(const struct engine_config *c) {
    return (struct plan_layout){ .kind = PLAN_TRAIN,
                                 .data = c->layout.data,
                                 .stages = c->layout.pipeline,
                                 .virtual_stages = c->layout.virtual_stages,
                                 .zero = c->layout.zero,
                                 .schedule = c->layout.schedule,
                                 .lanes = c->train.lanes,
                                 .recompute = c->train.recompute == RECOMPUTE_AUTO ? RECOMPUTE_NONE
                                                                                   : c->train.recompute,
                                 .reduce = c->train.reduce,
                                 .fast = c->train.numerics == ENGINE_NUMERICS_FAST,
                                 .bucket_bytes = c->bucket_bytes > 0 ? c->bucket_bytes : BUCKET_BYTES_DEFAULT,
                                 .uploads_ahead = strcmp(c->device, "cpu") != 0,
                                 .optimizer = c->train.optimizer.kind,
                                 .ema = c->train.ema.decay > 0 };
}

struct plan_layout job_model_layout(const struct engine_config *c, size_t workspace) {
    struct plan_layout l = base_layout(c);
    l.micro_batches = c->train.global_batch / c->train.micro_batch;
    l.workspace_bytes = workspace;
    return l;
}

status_t job_model_choose_buckets(struct engine_config *c, const struct graph *g, void (*progress)(void *ctx),
                                  void *ctx, struct bucket_choice *ret, struct err *e) {
    struct plan_profile profile = NOMINAL_CPU;
    *ret = (struct bucket_choice){ .bytes = c->bucket_bytes };
    if (c->bucket_bytes > 0)
        return ST_OK;
    if (strcmp(c->device, "cpu") != 0)
        TRY(plan_profile_find(NOMINAL_GPU, &profile, e));
    const struct plan_layout layout = job_model_layout(c, 0);
    TRY(bucket_choose(g, &layout, &profile, c->memory_bytes <= 0, progress, ctx, ret, e));
    c->bucket_bytes = ret->bytes;
    return ST_OK;
}

static struct choose_request request_of(struct job_model *o, const struct engine_config *c) {
    return (struct choose_request){ .layout = base_layout(c),
                                    .global_batch = c->train.global_batch,
                                    .micro_batch = c->train.micro_batch,
                                    .recompute = c->train.recompute,
                                    .memory_bytes = c->memory_bytes > 0 ? (size_t)c->memory_bytes : 0,
                                    .host = &o->host,
                                    .build = job_model_build,
                                    .ctx = o };
}

status_t job_model_resolve(struct job_model *o, struct engine_config *c, struct err *e) {
    struct choose_request request = request_of(o, c);
    struct choice choice;
    TRY(plan_choose(&request, &choice, e));
    c->train.micro_batch = choice.micro_batch;
    c->train.lanes = choice.lanes;
    c->train.recompute = choice.recompute;
    return ST_OK;
}

bool job_model_can_divide(const struct engine_config *c, int micro_batch, int lanes) {
    struct plan_layout l = base_layout(c);
    l.lanes = lanes;
    return plan_lanes(&l, c->train.global_batch, micro_batch) > 0;
}

status_t job_model_max_micro_batch(struct job_model *o, const struct engine_config *c, size_t memory_bytes, int *ret,
                                   bool *ret_larger_exceeds, struct err *e) {
    struct plan_layout l = base_layout(c);
    *ret_larger_exceeds = false;
    for (int n = c->train.global_batch; n > 0; n--) {
        CLEANUP(graph_freep) struct graph *g = NULL;
        size_t bytes;
        int rank;
        if (!plan_lanes(&l, c->train.global_batch, n))
            continue;
        l.micro_batches = c->train.global_batch / n;
        TRY(job_model_build(o, n, &g, &l.workspace_bytes, e));
        TRY(plan_max_bytes(g, &l, &o->host, &bytes, &rank, e));
        if (bytes <= memory_bytes) {
            *ret = n;
            return ST_OK;
        }
        *ret_larger_exceeds = true;
    }
    *ret = 0;
    return ST_OK;
}
