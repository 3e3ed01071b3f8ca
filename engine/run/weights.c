#include "engine/run/weights.h"

#include "base/alloc.h"

#include <stdlib.h>

enum { STAGED_ELEMENTS = 256 * PLAN_CHUNK };

static float *optimizer_at(const struct execution *x, size_t offset) {
    return offset == SIZE_MAX ? NULL : (float *)(void *)(x->arena->family[FAMILY_OPTIMIZER] + offset);
}

float *weights_master(const struct execution *x, const struct plan *plan, const struct plan_shard *p) {
    return p->master == SIZE_MAX ? execution_at(x, plan_weight_place(plan, p)) : optimizer_at(x, p->master);
}

float *weights_state(const struct execution *x, const struct plan_shard *p, int state) {
    return optimizer_at(x, p->state[state]);
}

float *weights_average(const struct execution *x, const struct plan_shard *p) { return optimizer_at(x, p->ema); }

struct filling {
    weights_source *source;
    void *ctx;
    float *staged; /* [STAGED_ELEMENTS] */
};

/* Elements first .. first + count - 1 of a parameter to the device, rounded to the element type of the kernel table. */
static status_t fill(const struct filling *f, const struct kernels *k, int parameter, int64_t first, int64_t count,
                     void *to, struct err *e) {
    for (int64_t at = 0; at < count; at += STAGED_ELEMENTS) {
        const int64_t n = count - at < STAGED_ELEMENTS ? count - at : STAGED_ELEMENTS;
        TRY(f->source(f->ctx, parameter, first + at, n, f->staged, e));
        TRY(k->upload_elements(k, (char *)to + (size_t)at * kernels_element_bytes(k), f->staged, n, e));
        TRY(k->finish(k, e));
    }
    return ST_OK;
}

status_t weights_fill(const struct execution *x, const struct plan *plan, weights_source *source, void *ctx,
                      struct err *e) {
    const struct kernels *k = x->kernels;
    CLEANUP(freep) float *staged = alloc_zeroed(STAGED_ELEMENTS, sizeof *staged);
    const struct filling f = { source, ctx, staged };
    for (int i = 0; i < plan->graph->n_parameters; i++)
        if (plan->parameter_begin[i] >= 0)
            TRY(fill(&f, k, i, 0, shape_elements(&plan->graph->parameters[i].shape),
                     execution_at(x, plan_parameter_place(plan, i)), e));
    for (int i = 0; i < plan->n_shards; i++) {
        const struct plan_shard *p = &plan->shards[i];
        if (plan->parameter_begin[p->parameter] < 0)
            TRY(fill(&f, k, p->parameter, p->first, p->count, execution_at(x, plan_weight_place(plan, p)), e));
        if (p->master != SIZE_MAX)
            TRY(fill(&f, k->fp32, p->parameter, p->first, p->count, optimizer_at(x, p->master), e));
    }
    return ST_OK;
}

status_t weights_fill_state(const struct execution *x, float *to, weights_source *source, void *ctx, int parameter,
                            int64_t first, int64_t count, struct err *e) {
    CLEANUP(freep) float *staged = alloc_zeroed(STAGED_ELEMENTS, sizeof *staged);
    const struct filling f = { source, ctx, staged };
    return fill(&f, x->kernels->fp32, parameter, first, count, to, e);
}

status_t weights_start_average(const struct execution *x, const struct plan *plan, struct err *e) {
    const struct kernels *k = x->kernels->fp32;
    for (int i = 0; i < plan->n_shards; i++) {
        const struct plan_shard *p = &plan->shards[i];
        if (p->ema != SIZE_MAX)
            TRY(k->copy(k, optimizer_at(x, p->ema), weights_master(x, plan, p), p->count, e));
    }
    return ST_OK;
}
