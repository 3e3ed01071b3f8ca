/* STEP: hands the shards of parameters that this rank owns to the optimizer, OPTIMIZER_SHARDS to a call, and updates
 * the running statistics of batch norms. SWITCH_AVERAGES: weights and their averages change places. STATISTICS: the
 * running moments of this rank's shards, in fp32. */
#include "engine/optimizer/optimizer.h"
#include "engine/run/instructions.h"
#include "engine/run/weights.h"

/* The 16-bit weight of a shard that has a separate fp32 master; else NULL. */
static void *weight_of(const struct execution *x, const struct plan *plan, const struct plan_shard *p) {
    return p->master == SIZE_MAX ? NULL : execution_at(x, plan_weight_place(plan, p));
}

static const float *gradient_of(const struct execution *x, const struct plan *plan, const struct instruction *i,
                                const struct plan_shard *p) {
    return execution_at(x, plan_gradient_place(plan, i->buffer, p->begin));
}

static const struct parameter *parameter_of(const struct plan *plan, const struct plan_shard *p) {
    return &plan->graph->parameters[p->parameter];
}

static struct optimizer_shard shard_of(const struct execution *x, const struct plan *plan, const struct instruction *i,
                                       const struct plan_shard *p) {
    struct optimizer_shard ret = { .parameter = parameter_of(plan, p),
                                   .first = p->first,
                                   .count = p->count,
                                   .master = weights_master(x, plan, p),
                                   .weight = weight_of(x, plan, p),
                                   .ema = weights_average(x, p),
                                   .gradient = gradient_of(x, plan, i, p) };
    for (int s = 0; s < OPTIMIZER_STATES; s++)
        ret.state[s] = weights_state(x, p, s);
    return ret;
}

static status_t step_shards(const struct execution *x, const struct plan *plan, const struct optimizer_shard *shards,
                            int n, struct err *e) {
    const struct optimizer_call c = { .kernels = x->kernels,
                                      .shards = shards,
                                      .n_shards = n,
                                      .clip_value = x->clip_value,
                                      .learning_rate = x->control.device->learning_rate,
                                      .update = &x->control.device->decision.update,
                                      .ema_decay = x->ema_decay,
                                      .workspace = execution_workspace(x, plan) };
    return n ? optimizer_step(x->optimizer, &c, e) : ST_OK;
}

static status_t step_weights(const struct execution *x, const struct plan *plan, const struct instruction *i,
                             struct err *e) {
    struct optimizer_shard shards[OPTIMIZER_SHARDS];
    int n = 0;
    for (int64_t k = i->begin; k < i->end; k++) {
        if (parameter_of(plan, &plan->shards[k])->kind == PARAMETER_STATISTIC)
            continue;
        shards[n++] = shard_of(x, plan, i, &plan->shards[k]);
        if (n == OPTIMIZER_SHARDS) {
            TRY(step_shards(x, plan, shards, n, e));
            n = 0;
        }
    }
    return step_shards(x, plan, shards, n, e);
}

static status_t step_means(const struct execution *x, const struct plan *plan, const struct span *spans, int n,
                           double momentum, struct err *e) {
    return x->kernels->running_mean(x->kernels, spans, n, momentum, plan->layout.micro_batches,
                                    &x->control.device->decision.update, e);
}

/* Statistics with the same momentum go into one call. A model uses one momentum. */
static status_t step_statistics(const struct execution *x, const struct plan *plan, const struct instruction *i,
                                struct err *e) {
    struct span spans[OPTIMIZER_SHARDS];
    double momentum = 0;
    int n = 0;
    for (int64_t k = i->begin; k < i->end; k++) {
        const struct plan_shard *p = &plan->shards[k];
        const struct parameter *parameter = parameter_of(plan, p);
        if (parameter->kind != PARAMETER_STATISTIC)
            continue;
        if (n == OPTIMIZER_SHARDS || (n > 0 && parameter->momentum != momentum)) {
            TRY(step_means(x, plan, spans, n, momentum, e));
            n = 0;
        }
        momentum = parameter->momentum;
        spans[n++] = (struct span){ .n = p->count,
                                    .p = weights_master(x, plan, p),
                                    .weight = weight_of(x, plan, p),
                                    .x = gradient_of(x, plan, i, p) };
    }
    return n ? step_means(x, plan, spans, n, momentum, e) : ST_OK;
}

status_t execute_step(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    TRY(step_weights(x, plan, i, e));
    return step_statistics(x, plan, i, e);
}

/* Statistics have no average. A 16-bit weight follows its master. */
status_t execute_switch_averages(struct execution *x, const struct plan *plan, const struct instruction *i,
                                 struct err *e) {
    const struct kernels *k = x->kernels;
    for (int64_t n = i->begin; n < i->end; n++) {
        const struct plan_shard *p = &plan->shards[n];
        float *master = weights_master(x, plan, p), *average = weights_average(x, p);
        void *weight = weight_of(x, plan, p);
        if (!average)
            continue;
        TRY(k->exchange(k, master, average, p->count, e));
        if (weight)
            TRY(k->convert(k, weight, master, p->count, e));
    }
    return ST_OK;
}

status_t execute_statistics(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    const struct kernels *k = x->kernels->fp32;
    float *all = execution_statistics(x, plan);
    TRY(k->fill(k, all, 0, (int64_t)(plan->statistics_bytes / sizeof *all), e));
    for (int64_t n = i->begin; n < i->end; n++) {
        const struct plan_shard *p = &plan->shards[n];
        float *to = execution_at(x, plan_statistic_place(plan, p->parameter));
        if (to)
            TRY(k->copy(k, to + p->first, weights_master(x, plan, p), p->count, e));
    }
    return ST_OK;
}
