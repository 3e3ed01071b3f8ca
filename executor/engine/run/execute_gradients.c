#include "executor/engine/run/execute.h"

#include "executor/engine/run/spikes.h"

#include <math.h>

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

static status_t run_norm(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    double *sums = execution_chunk_sums(x, plan);
    for (int64_t k = i->begin; k < i->end; k++) {
        const struct plan_piece *p = &plan->pieces[k];
        if (p->norm >= 0)
            TRY(x->kernels->sum_squares(x->kernels, sums + p->norm, gradient_at(x, plan, i->buffer, p->begin), p->count,
                                        e));
    }
    return ST_OK;
}

/* The record is whole by now: its exchange came before the last reduction on the data queue, which was waited for. */
static bool losses_finite(const struct execution *x, const struct plan *plan) {
    for (int k = 0; k < plan->layout.micro_batches; k++)
        if (!isfinite(x->record->losses[k]))
            return false;
    return true;
}

static enum step_skip judge(const struct execution *x, const struct plan *plan) {
    if (!losses_finite(x, plan))
        return STEP_NOT_FINITE;
    if (!isfinite(x->grad_norm))
        return x->skip_overflows ? STEP_OVERFLOW : STEP_NOT_FINITE;
    return x->spikes && spikes_is_one(x->spikes, x->grad_norm) ? STEP_SPIKE : STEP_APPLIED;
}

static status_t run_decide(struct execution *x, const struct plan *plan, struct err *e) {
    const struct kernels *k = x->kernels;
    double sum = 0;
    TRY(k->download(k, x->norms, execution_chunk_sums(x, plan), (size_t)plan->norm_chunks * sizeof *x->norms, e));
    TRY(k->finish(k, e));
    for (int64_t c = 0; c < plan->norm_chunks; c++)
        sum += x->norms[c];
    x->grad_norm = sqrt(sum) * x->gradient_scale;
    x->skip = judge(x, plan);
    double clip = x->clip_norm > 0 ? x->clip_norm / (x->grad_norm + 1e-6) : 1;
    x->clip_scale = clip < 1 ? clip : 1;
    return ST_OK;
}

status_t execute_gradient(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_ADD: return run_add(x, plan, i, e);
    case INSTRUCTION_ADD_SLOT: return run_add_slot(x, plan, i, e);
    case INSTRUCTION_NORM: return run_norm(x, plan, i, e);
    default: return run_decide(x, plan, e);
    }
}
