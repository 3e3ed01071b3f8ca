#include "executor/engine/run/execute.h"

#include "executor/engine/graph/op.h"

#include <math.h>

size_t step_record_bytes(int micro_batches) {
    return sizeof(struct step_record) + (size_t)micro_batches * sizeof(double);
}

void execution_attach(struct execution *x, const struct arena *arena, const struct plan *plan) {
    x->parameters = (float *)arena->family[FAMILY_PARAMETERS];
    x->moment1 = (float *)arena->family[FAMILY_OPTIMIZER];
    x->moment2 = x->moment1 + plan->parameter_elements;
    x->gradients = (float *)arena->family[FAMILY_GRADIENTS];
    x->activations = arena->family[FAMILY_ACTIVATIONS];
    x->batch = arena->family[FAMILY_BATCH];
    x->chunk_sums = (double *)arena->family[FAMILY_WORKSPACE];
    x->workspace = arena->family[FAMILY_WORKSPACE] + plan_chunk_sum_bytes(plan);
}

void *execution_tensor(const struct execution *x, const struct plan *plan, int t) {
    if (t < 0 || plan->tensor_offset[t] == SIZE_MAX)
        return NULL;
    return (plan->graph->tensors[t].role == TENSOR_BATCH ? x->batch : x->activations) + plan->tensor_offset[t];
}

float *execution_slot(const struct execution *x, const struct plan *plan, int buffer, int slot) {
    return x->gradients + buffer * plan->gradient_elements + plan->slot_begin[slot];
}

static float *parameter_of_slot(const struct execution *x, const struct plan *plan, int slot) {
    return x->parameters + plan->parameter_begin[plan->graph->slots[slot].parameter];
}

/* --- ops ---*/

static void call_op(const struct execution *x, const struct plan *plan, const struct instruction *i, int index,
                    struct op_call *c) {
    const struct op *op = &plan->graph->ops[index];
    *c = (struct op_call){ .kernels = x->kernels,
                           .graph = plan->graph,
                           .op = op,
                           .workspace = x->workspace,
                           .training = plan->layout.kind == PLAN_TRAIN,
                           .seed = x->seed,
                           .step = x->step,
                           .first_sample = (int64_t)i->micro_batch * plan->graph->micro_batch,
                           .loss_scale = x->loss_scale };
    for (int k = 0; k < OP_INPUTS; k++)
        c->in[k] = execution_tensor(x, plan, op->in[k]);
    for (int k = 0; k < OP_OUTPUTS; k++)
        c->out[k] = execution_tensor(x, plan, op->out[k]);
    for (int k = 0; k < OP_PARAMETERS; k++)
        if (op->slot[k] >= 0)
            c->param[k] = parameter_of_slot(x, plan, op->slot[k]);
}

static void note_losses(struct execution *x, const struct plan *plan, const struct instruction *i) {
    const struct shape *shape = &plan->graph->tensors[plan->graph->losses].shape;
    const float *losses = execution_tensor(x, plan, plan->graph->losses);
    double sum = 0;
    for (int64_t k = 0; k < shape_elements(shape); k++)
        sum += (double)losses[k];
    x->record->losses[i->micro_batch] = sum;
}

static status_t run_forward(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    struct op_call c;
    call_op(x, plan, i, i->op, &c);
    TRY(c.op->kind->forward(&c, e));
    if (c.op->out[0] == plan->graph->losses)
        note_losses(x, plan, i);
    return ST_OK;
}

static status_t run_backward(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    const struct reverse_op *r = &plan->graph->reverse[i->op];
    struct op_call c;
    call_op(x, plan, i, r->op, &c);
    const struct op_kind *kind = c.op->kind;
    for (int k = 0; k < OP_INPUTS; k++) {
        c.d_in[k] = execution_tensor(x, plan, r->d_in[k]);
        c.accumulate[k] = r->accumulate[k];
    }
    for (int k = 0; k < OP_OUTPUTS; k++)
        c.d_out[k] = execution_tensor(x, plan, r->d_out[k]);
    for (int k = 0; k < OP_PARAMETERS; k++)
        if (c.op->slot[k] >= 0)
            c.d_param[k] = execution_slot(x, plan, i->buffer, c.op->slot[k]);
    c.accumulate_param = !i->first;
    if (i->kind == INSTRUCTION_BACKWARD_WEIGHT)
        return kind->backward_weight(&c, e);
    return kind->reverse_is_view ? ST_OK : kind->backward_input(&c, e);
}

/* --- gradients and the optimizer ---*/

static status_t run_add(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    float *to = x->gradients + i->buffer * plan->gradient_elements + i->begin;
    const float *from = x->gradients + i->source * plan->gradient_elements + i->begin;
    return x->kernels->accumulate(x->kernels, to, from, i->end - i->begin, e);
}

static status_t run_add_slot(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    return x->kernels->accumulate(x->kernels, execution_slot(x, plan, 0, i->op), execution_slot(x, plan, 0, i->source),
                                  plan->slot_end[i->op] - plan->slot_begin[i->op], e);
}

static status_t run_norm(struct execution *x, const struct instruction *i, struct err *e) {
    return x->kernels->sum_squares(x->kernels, x->chunk_sums + i->begin / PLAN_CHUNK, x->gradients + i->begin,
                                   i->end - i->begin, e);
}

static void run_decide(struct execution *x, const struct plan *plan) {
    double sum = 0;
    for (int k = 0; k < plan->graph->n_slots; k++) {
        int s = plan->slot_order[k];
        if (plan->graph->parameters[plan->graph->slots[s].parameter].first_slot != s)
            continue;
        for (int64_t c = plan->slot_begin[s] / PLAN_CHUNK; c < plan->slot_end[s] / PLAN_CHUNK; c++)
            sum += x->chunk_sums[c];
    }
    x->grad_norm = sqrt(sum);
    x->apply = isfinite(x->grad_norm);
    double scale = x->clip_norm > 0 ? x->clip_norm / (x->grad_norm + 1e-6) : 1;
    x->adamw.gradient_scale = (float)(scale < 1 ? scale : 1);
}

static status_t run_step(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    if (!x->apply)
        return ST_OK;
    const struct parameter *p = &plan->graph->parameters[plan->graph->slots[i->op].parameter];
    int64_t at = plan->parameter_begin[plan->graph->slots[i->op].parameter];
    struct adamw adamw = x->adamw;
    if (!p->decay)
        adamw.weight_decay = 0;
    return x->kernels->adamw(x->kernels, x->parameters + at, x->moment1 + at, x->moment2 + at,
                             execution_slot(x, plan, 0, i->op), shape_elements(&p->shape), &adamw, e);
}

static status_t run_load(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    return x->load(x->load_ctx, i->micro_batch, execution_tensor(x, plan, plan->graph->tokens),
                   execution_tensor(x, plan, plan->graph->targets), e);
}

static status_t run_instruction(struct execution *x, const struct plan *plan, const struct instruction *i,
                                struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_LOAD: return run_load(x, plan, i, e);
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: return run_forward(x, plan, i, e);
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT: return run_backward(x, plan, i, e);
    case INSTRUCTION_ADD: return run_add(x, plan, i, e);
    case INSTRUCTION_ADD_SLOT: return run_add_slot(x, plan, i, e);
    case INSTRUCTION_WAIT: return channel_wait(x->channel, i->entry, e);
    case INSTRUCTION_NORM: return run_norm(x, i, e);
    case INSTRUCTION_DECIDE: run_decide(x, plan); return ST_OK;
    case INSTRUCTION_STEP: return run_step(x, plan, i, e);
    default: return err_set(e, ST_INTERNAL, "%s has no place in the compute queue", instruction_name(i->kind));
    }
}

status_t execute(struct execution *x, const struct plan *plan, struct err *e) {
    size_t bytes = step_record_bytes(plan->layout.micro_batches);
    if (x->channel)
        channel_begin(
            x->channel, plan,
            &(struct channel_memory){
                .gradients = x->gradients, .record = x->record, .records = x->records, .record_bytes = bytes });
    for (int n = 0; n < plan->compute.n; n++) {
        const struct instruction *i = &plan->compute.items[n];
        TRY(run_instruction(x, plan, i, e));
        if (x->channel)
            TRY(channel_reached(x->channel, n + 1, e));
        if (x->progress)
            x->progress(x->progress_ctx);
    }
    return ST_OK;
}

/* --- results ---*/

static const struct step_record *record_of(const struct execution *x, const struct plan *plan, int rank) {
    if (plan->layout.world_size == 1)
        return x->record;
    return (const struct step_record *)((const char *)x->records +
                                        (size_t)rank * step_record_bytes(plan->layout.micro_batches));
}

double execution_loss_sum(const struct execution *x, const struct plan *plan, int *ret_bad) {
    double sum = 0;
    *ret_bad = -1;
    for (int k = 0; k < plan->layout.micro_batches; k++) {
        double loss = record_of(x, plan, plan_owner(&plan->layout, k))->losses[k];
        if (!isfinite(loss) && *ret_bad < 0)
            *ret_bad = k;
        sum += loss;
    }
    return sum;
}

uint64_t execution_flags(const struct execution *x, const struct plan *plan) {
    uint64_t flags = 0;
    for (int r = 0; r < plan->layout.world_size; r++)
        flags |= record_of(x, plan, r)->flags;
    return flags;
}

static status_t outputs_finite(const struct execution *x, const struct plan *plan, const struct op *op, bool *ret,
                               struct err *e) {
    *ret = true;
    for (int k = 0; k < OP_OUTPUTS && *ret; k++)
        if (op->out[k] >= 0)
            TRY(x->kernels->all_finite(x->kernels, ret, execution_tensor(x, plan, op->out[k]),
                                       shape_elements(&plan->graph->tensors[op->out[k]].shape), e));
    return ST_OK;
}

status_t execute_find_bad_op(struct execution *x, const struct plan *plan, int k, const char **ret_op, struct err *e) {
    *ret_op = "";
    for (int n = 0; n < plan->compute.n; n++) {
        const struct instruction *i = &plan->compute.items[n];
        if (i->micro_batch != k || (i->kind != INSTRUCTION_LOAD && i->kind != INSTRUCTION_FORWARD))
            continue;
        TRY(run_instruction(x, plan, i, e));
        if (i->kind == INSTRUCTION_LOAD)
            continue;
        const struct op *op = &plan->graph->ops[i->op];
        bool finite;
        TRY(outputs_finite(x, plan, op, &finite, e));
        if (!finite) {
            *ret_op = op->name;
            return ST_OK;
        }
    }
    return ST_OK;
}
