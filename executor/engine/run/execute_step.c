#include "executor/engine/optimizer/optimizer.h"
#include "executor/engine/run/execute.h"
#include "executor/engine/run/weights.h"

/* A weight's place where it is not its own master. */
static void *weight_of(const struct execution *x, const struct plan *plan, const struct plan_piece *p) {
    return p->master == SIZE_MAX ? NULL : execution_at(x, plan_weight_place(plan, p));
}

static status_t step_statistic(const struct execution *x, const struct plan *plan, const struct plan_piece *p,
                               float *running, const float *sum, struct err *e) {
    return x->kernels->running_mean(x->kernels, running, weight_of(x, plan, p), sum, p->count,
                                    plan->graph->parameters[p->parameter].momentum, plan->layout.micro_batches,
                                    &x->control.device->decision.update, e);
}

static status_t step_weight(struct execution *x, const struct plan *plan, const struct plan_piece *p, float *master,
                            const float *gradient, struct err *e) {
    struct optimizer_call c = { .kernels = x->kernels,
                                .parameter = &plan->graph->parameters[p->parameter],
                                .first = p->first,
                                .count = p->count,
                                .master = master,
                                .weight = weight_of(x, plan, p),
                                .ema = weights_average(x, p),
                                .gradient = gradient,
                                .clip_value = x->clip_value,
                                .learning_rate = x->control.device->learning_rate,
                                .update = &x->control.device->decision.update,
                                .ema_decay = x->ema_decay,
                                .workspace = execution_workspace(x, plan) };
    for (int s = 0; s < OPTIMIZER_STATES; s++)
        c.state[s] = weights_state(x, p, s);
    return optimizer_step(x->optimizer, &c, e);
}

status_t execute_step(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    for (int64_t k = i->begin; k < i->end; k++) {
        const struct plan_piece *p = &plan->pieces[k];
        float *master = weights_master(x, plan, p);
        const float *gradient = execution_at(x, plan_gradient_place(plan, i->buffer, p->begin));
        if (plan->graph->parameters[p->parameter].kind == PARAMETER_STATISTIC)
            TRY(step_statistic(x, plan, p, master, gradient, e));
        else
            TRY(step_weight(x, plan, p, master, gradient, e));
    }
    return ST_OK;
}
