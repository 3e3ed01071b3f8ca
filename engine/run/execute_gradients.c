/* The instructions on gradients: sums of buffers, the squares that norms are made of, and the step decision. */
#include "engine/run/instructions.h"

static float *gradient_at(const struct execution *x, const struct plan *plan, int buffer, int64_t at) {
    return execution_at(x, plan_gradient_place(plan, buffer, at));
}

static status_t run_add(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    int64_t n = i->end - i->begin;
    if (n <= 0)
        return ST_OK;
    float *to = gradient_at(x, plan, i->buffer, i->begin);
    const float *from = gradient_at(x, plan, i->source, i->begin);
    if (!i->first)
        return x->kernels->accumulate(x->kernels, to, from, n, e);
    return x->kernels->fp32->copy(x->kernels->fp32, to, from, n, e);
}

/* The owner's use of a shared parameter += the same elements of its other use, whose gradient may come from another
 * stage. */
static status_t run_add_use(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    for (int64_t k = i->begin; k < i->end; k++) {
        const struct plan_shard *p = &plan->shards[k];
        int64_t inside = p->begin - plan->use_begin[p->use];
        TRY(x->kernels->accumulate(x->kernels, gradient_at(x, plan, i->buffer, p->begin),
                                   gradient_at(x, plan, i->buffer, plan->use_begin[i->source] + inside), p->count, e));
    }
    return ST_OK;
}

/* Segments of one kernel call. */
enum { NORM_SPANS = 128 };

static status_t run_norm(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    struct norm_span spans[NORM_SPANS];
    double *sums = execution_chunk_sums(x, plan);
    int n = 0;
    for (int64_t k = i->begin; k < i->end; k++) {
        const struct plan_shard *p = &plan->shards[k];
        if (p->norm >= 0)
            spans[n++] = (struct norm_span){ sums + p->norm, gradient_at(x, plan, i->buffer, p->begin), p->count };
        if (n == NORM_SPANS || (k == i->end - 1 && n > 0)) {
            TRY(x->kernels->sum_squares(x->kernels, spans, n, e));
            n = 0;
        }
    }
    return ST_OK;
}

/* The step results are complete: their exchange comes before the last reduction on the data queue, for which the plan
 * waits. */
static status_t run_decide(struct execution *x, const struct plan *plan, struct err *e) {
    struct step_control *c = x->control.device;
    return x->kernels->decide(x->kernels, &c->decision, c->losses, plan->layout.micro_batches,
                              execution_chunk_sums(x, plan), plan->norm_chunks, &x->decide, e);
}

status_t execute_gradient(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_ADD: return run_add(x, plan, i, e);
    case INSTRUCTION_ADD_USE: return run_add_use(x, plan, i, e);
    case INSTRUCTION_NORM: return run_norm(x, plan, i, e);
    default: return run_decide(x, plan, e);
    }
}
