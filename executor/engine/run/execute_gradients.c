#include "executor/engine/run/execute.h"

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

/* A piece of an owner's slot += the same elements of its sibling, which may have come from another stage. */
static status_t run_add_slot(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    for (int64_t k = i->begin; k < i->end; k++) {
        const struct plan_piece *p = &plan->pieces[k];
        int64_t inside = p->begin - plan->slot_begin[p->slot];
        TRY(x->kernels->accumulate(x->kernels, gradient_at(x, plan, i->buffer, p->begin),
                                   gradient_at(x, plan, i->buffer, plan->slot_begin[i->source] + inside), p->count, e));
    }
    return ST_OK;
}

/* Pieces of one call. */
enum { NORM_SPANS = 128 };

static status_t run_norm(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    struct norm_span spans[NORM_SPANS];
    double *sums = execution_chunk_sums(x, plan);
    int n = 0;
    for (int64_t k = i->begin; k < i->end; k++) {
        const struct plan_piece *p = &plan->pieces[k];
        if (p->norm >= 0)
            spans[n++] = (struct norm_span){ sums + p->norm, gradient_at(x, plan, i->buffer, p->begin), p->count };
        if (n == NORM_SPANS || (k == i->end - 1 && n > 0)) {
            TRY(x->kernels->sum_squares(x->kernels, spans, n, e));
            n = 0;
        }
    }
    return ST_OK;
}

/* The record is whole by now: its exchange came before the last reduction on the data queue, which was waited for. */
static status_t run_decide(struct execution *x, const struct plan *plan, struct err *e) {
    struct step_control *c = x->control.device;
    return x->kernels->decide(x->kernels, &c->decision, c->losses, plan->layout.micro_batches,
                              execution_chunk_sums(x, plan), plan->norm_chunks, &x->decide, e);
}

status_t execute_gradient(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_ADD: return run_add(x, plan, i, e);
    case INSTRUCTION_ADD_SLOT: return run_add_slot(x, plan, i, e);
    case INSTRUCTION_NORM: return run_norm(x, plan, i, e);
    default: return run_decide(x, plan, e);
    }
}
