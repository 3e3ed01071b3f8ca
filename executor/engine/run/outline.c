#include "executor/engine/run/outline.h"

#include "executor/engine/graph/op.h"
#include "executor/engine/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small enough that the first bucket leaves early, large enough that a message's fixed cost is lost in it. Chosen, not
 * measured against other sizes. */
static const int64_t BUCKET_BYTES = 4 << 20;

struct outline {
    struct model_config model;
    struct model_data data;
    enum dtype element;
    const struct optimizer_kind *optimizer;
    const struct kernels *kernels; /* asked how much room ops take */
    struct kernels *own;           /* the same, where it is ours to close */
};

static enum dtype element_of(enum engine_precision p) {
    return p == ENGINE_BF16 ? DTYPE_BF16 : p == ENGINE_FP16 ? DTYPE_F16 : DTYPE_F32;
}

static enum kernels_precision precision_of(enum engine_precision p) {
    return p == ENGINE_BF16 ? KERNELS_BF16 : p == ENGINE_FP16 ? KERNELS_FP16 : KERNELS_FP32;
}

static struct kernels_config kernels_config_of(const struct engine_config *c) {
    struct kernels_config config = { .device = c->device,
                                     .threads = c->threads > 0 ? c->threads : 1,
                                     .precision = precision_of(c->train.precision),
                                     .fast = c->train.numerics == ENGINE_NUMERICS_FAST };
    int end = 0;
    if (sscanf(c->device, "cuda:%d%n", &config.ordinal, &end) == 1 && c->device[end] == '\0')
        config.device = "cuda";
    return config;
}

status_t outline_kernels(const struct engine_config *c, const char *record, struct kernels **ret, struct err *e) {
    struct kernels_config config = kernels_config_of(c);
    config.record = record;
    return kernels_open(&config, ret, e);
}

status_t outline_source(const struct engine_config *c, void (*progress)(void *ctx), void *ctx, struct source **ret,
                        struct err *e) {
    struct source_options options = { .context = model_context(&c->model),
                                      .vocabulary = model_vocabulary(&c->model),
                                      .threads = c->threads,
                                      .progress = progress,
                                      .ctx = ctx };
    return source_open(&c->data, &options, ret, e);
}

/* The table that is open, else what tells of its device, else one of our own. */
static status_t find_kernels(struct outline *o, const struct engine_config *c, const struct kernels *open,
                             struct err *e) {
    const struct kernels_config config = kernels_config_of(c);
    o->kernels = open ? open : kernels_described(&config);
    if (o->kernels)
        return ST_OK;
    TRY(kernels_open(&config, &o->own, e));
    o->kernels = o->own;
    return ST_OK;
}

static status_t open_parts(struct outline *o, struct engine_config *c, const struct source *source,
                           const struct kernels *open, struct err *e) {
    o->data = model_data_of(source_info(source));
    TRY(model_resolve(&c->model, &o->data, e));
    o->model = c->model;
    o->element = element_of(c->train.precision);
    o->optimizer = c->train.optimizer.kind;
    return find_kernels(o, c, open, e);
}

status_t outline_open(struct engine_config *config, const struct source *source, const struct kernels *open,
                      struct outline **ret, struct err *e) {
    struct outline *o = calloc(1, sizeof *o);
    if (!o)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for an outline");
    status_t st = open_parts(o, config, source, open, e);
    if (st != ST_OK)
        o = outline_close(o);
    *ret = o;
    return st;
}

struct outline *outline_close(struct outline *o) {
    if (!o)
        return NULL;
    kernels_close(o->own);
    free(o);
    return NULL;
}

size_t outline_workspace(const struct kernels *k, const struct graph *g, const struct optimizer_kind *optimizer) {
    size_t most = 0;
    for (int i = 0; i < g->n_ops; i++) {
        const struct op_kind *kind = g->ops[i].kind;
        size_t bytes = kind->workspace ? kind->workspace(k, g, &g->ops[i]) : 0;
        most = bytes > most ? bytes : most;
    }
    for (int i = 0; i < g->n_parameters && optimizer; i++) {
        size_t bytes = optimizer_workspace(optimizer, k, &g->parameters[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

status_t outline_build(void *ctx, int micro_batch, struct graph **ret, size_t *ret_workspace, struct err *e) {
    const struct outline *o = ctx;
    TRY(model_build(&o->model, &o->data, micro_batch, o->element, ret, e));
    *ret_workspace = outline_workspace(o->kernels, *ret, o->optimizer);
    return ST_OK;
}

/* All but what the micro-batch decides. A recompute that is not chosen yet counts as none. */
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
                                 .bucket_bytes = c->bucket_bytes > 0 ? c->bucket_bytes : BUCKET_BYTES,
                                 .uploads_ahead = strcmp(c->device, "cpu") != 0,
                                 .optimizer = c->train.optimizer.kind,
                                 .ema = c->train.ema_decay > 0 };
}

struct plan_layout outline_layout(const struct engine_config *c, size_t workspace) {
    struct plan_layout l = base_layout(c);
    l.micro_batches = c->train.global_batch / c->train.micro_batch;
    l.workspace_bytes = workspace;
    return l;
}

static struct choose_request request_of(struct outline *o, const struct engine_config *c) {
    return (struct choose_request){ .layout = base_layout(c),
                                    .global_batch = c->train.global_batch,
                                    .micro_batch = c->train.micro_batch,
                                    .recompute = c->train.recompute,
                                    .memory_bytes = c->memory_bytes > 0 ? (size_t)c->memory_bytes : 0,
                                    .build = outline_build,
                                    .ctx = o };
}

status_t outline_resolve(struct outline *o, struct engine_config *c, struct err *e) {
    struct choose_request request = request_of(o, c);
    struct choice choice;
    TRY(plan_choose(&request, &choice, e));
    c->train.micro_batch = choice.micro_batch;
    c->train.lanes = choice.lanes;
    c->train.recompute = choice.recompute;
    return ST_OK;
}

bool outline_cuts(const struct engine_config *c, int micro_batch, int lanes) {
    struct plan_layout l = base_layout(c);
    l.lanes = lanes;
    return plan_lanes(&l, c->train.global_batch, micro_batch) > 0;
}

status_t outline_largest(struct outline *o, const struct engine_config *c, size_t memory_bytes, int *ret,
                         struct err *e) {
    struct plan_layout l = base_layout(c);
    for (int n = c->train.global_batch; n > 0; n--) {
        CLEANUP(graph_freep) struct graph *g = NULL;
        size_t bytes;
        int rank;
        if (!plan_lanes(&l, c->train.global_batch, n))
            continue;
        l.micro_batches = c->train.global_batch / n;
        TRY(outline_build(o, n, &g, &l.workspace_bytes, e));
        TRY(plan_most_bytes(g, &l, &bytes, &rank, e));
        if (bytes <= memory_bytes) {
            *ret = n;
            return ST_OK;
        }
    }
    *ret = 0;
    return ST_OK;
}
