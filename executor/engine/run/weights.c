#include "executor/engine/run/weights.h"

#include <stdlib.h>
#include <string.h>

enum { CONVERTED_ELEMENTS = 256 * PLAN_CHUNK };

static float *optimizer_at(const struct execution *x, size_t offset) {
    return offset == SIZE_MAX ? NULL : (float *)(void *)(x->arena->family[FAMILY_OPTIMIZER] + offset);
}

float *weights_master(const struct execution *x, const struct plan *plan, const struct plan_piece *p) {
    return p->master == SIZE_MAX ? execution_at(x, plan_weight_place(plan, p)) : optimizer_at(x, p->master);
}

float *weights_state(const struct execution *x, const struct plan_piece *p, int state) {
    return optimizer_at(x, p->state[state]);
}

float *weights_average(const struct execution *x, const struct plan_piece *p) { return optimizer_at(x, p->ema); }

struct filling {
    const struct execution *x;
    const struct plan *plan;
    weights_source *source;
    void *ctx;
    float *buffer; /* [CONVERTED_ELEMENTS], when elements are no floats */
};

/* Elements first .. first + count - 1 of a parameter to memory in the graph's type. */
static status_t fill(const struct filling *f, int parameter, int64_t first, int64_t count, void *to, struct err *e) {
    const size_t element = dtype_bytes(f->plan->graph->element);
    if (f->plan->graph->element == DTYPE_F32)
        return f->source(f->ctx, parameter, first, count, to, e);
    for (int64_t at = 0; at < count; at += CONVERTED_ELEMENTS) {
        int64_t n = count - at < CONVERTED_ELEMENTS ? count - at : CONVERTED_ELEMENTS;
        TRY(f->source(f->ctx, parameter, first + at, n, f->buffer, e));
        TRY(f->x->kernels->convert(f->x->kernels, (char *)to + (size_t)at * element, f->buffer, n, e));
    }
    return ST_OK;
}

static status_t fill_all(const struct filling *f, struct err *e) {
    const struct plan *plan = f->plan;
    for (int i = 0; i < plan->graph->n_parameters; i++)
        if (plan->parameter_begin[i] >= 0) {
            const size_t offset = (size_t)plan->parameter_begin[i] * dtype_bytes(plan->graph->element);
            TRY(fill(f, i, 0, shape_elements(&plan->graph->parameters[i].shape),
                     f->x->arena->family[FAMILY_PARAMETERS] + offset, e));
        }
    for (int i = 0; i < plan->n_pieces; i++) {
        const struct plan_piece *p = &plan->pieces[i];
        if (plan->parameter_begin[p->parameter] < 0)
            TRY(fill(f, p->parameter, p->first, p->count, execution_at(f->x, plan_weight_place(plan, p)), e));
        if (p->master != SIZE_MAX)
            TRY(f->source(f->ctx, p->parameter, p->first, p->count, optimizer_at(f->x, p->master), e));
    }
    return ST_OK;
}

status_t weights_fill(const struct execution *x, const struct plan *plan, weights_source *source, void *ctx,
                      struct err *e) {
    struct filling f = { .x = x, .plan = plan, .source = source, .ctx = ctx };
    if (plan->graph->element != DTYPE_F32 && !(f.buffer = malloc(CONVERTED_ELEMENTS * sizeof(float))))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to convert weights");
    status_t st = fill_all(&f, e);
    free(f.buffer);
    return st;
}

void weights_start_average(const struct execution *x, const struct plan *plan) {
    for (int i = 0; i < plan->n_pieces; i++) {
        const struct plan_piece *p = &plan->pieces[i];
        if (p->ema != SIZE_MAX)
            memcpy(optimizer_at(x, p->ema), weights_master(x, plan, p), (size_t)p->count * sizeof(float));
    }
}
