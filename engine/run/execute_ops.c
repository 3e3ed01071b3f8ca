/* The instructions that call ops:
 *
 *   LOAD              uploads a micro-batch's inputs. On a deferred device the upload goes to its own queue, into an
 *                     upload buffer of the plan, and overlaps with what the device computes; the kernels then wait for
 *                     it and make the tensors from it
 *   FORWARD           an op; if it writes the losses or a report, their sum goes into the step results on the device
 *   RECOMPUTE         the same op again, without the step results
 *   BACKWARD_INPUT    the gradient of an op's inputs
 *   BACKWARD_WEIGHT   the gradient of its parameters, added to the use or written to it if this is the first time
 *   COPY_GRADIENT              a copy of an output's gradient, for a BACKWARD_WEIGHT that comes later
 *
 * If x->culprit is set, everything that an op writes (outputs, gradients of inputs and of parameters) is scanned for
 * values that are not finite. */
#include "engine/run/instructions.h"

#include "engine/graph/op.h"

static void *tensor_of(const struct execution *x, const struct plan *plan, const struct instruction *i, int t) {
    return t < 0 ? NULL : execution_at(x, plan_tensor_place(plan, t, i->in_flight, instruction_lifetime(plan, i)));
}

static void fill_call(const struct execution *x, const struct plan *plan, const struct instruction *i, int index,
                      struct op_call *c) {
    const struct op *op = &plan->graph->ops[index];
    *c = (struct op_call){ .kernels = x->kernels,
                           .graph = plan->graph,
                           .op = op,
                           .workspace = execution_workspace(x, plan),
                           .training = plan->layout.kind == PLAN_TRAIN,
                           .seed = x->seed,
                           .step = &x->control.device->step,
                           .first_sample = (int64_t)i->micro_batch * plan->graph->micro_batch,
                           .loss_scale = &x->control.device->decision.loss_gradient };
    for (int k = 0; k < OP_INPUTS; k++)
        c->in[k] = tensor_of(x, plan, i, op->in[k]);
    for (int k = 0; k < OP_OUTPUTS; k++)
        c->out[k] = tensor_of(x, plan, i, op->out[k]);
    for (int k = 0; k < OP_PARAMETERS; k++) {
        if (op->use[k] < 0)
            continue;
        const int parameter = plan->graph->uses[op->use[k]].parameter;
        const struct plan_place fp32 = plan_statistic_place(plan, parameter);
        c->param[k] = execution_at(x, fp32.offset == SIZE_MAX ? plan_parameter_place(plan, parameter) : fp32);
    }
}

/* --- LOAD --- */

static bool is_narrow(const struct tensor *t) { return t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16; }

static status_t load_now(const struct execution *x, const struct plan *plan, const struct instruction *i, int t,
                         const void *from, struct err *e) {
    const struct tensor *tensor = &plan->graph->tensors[t];
    void *to = tensor_of(x, plan, i, t);
    return is_narrow(tensor) ? x->kernels->upload_elements(x->kernels, to, from, shape_elements(&tensor->shape), e)
                             : x->kernels->upload(x->kernels, to, from, graph_tensor_bytes(plan->graph, t), e);
}

/* Makes a tensor from its upload buffer. */
static status_t take_upload(const struct execution *x, const struct plan *plan, const struct instruction *i, int t,
                            struct err *e) {
    const struct tensor *tensor = &plan->graph->tensors[t];
    const void *from = execution_at(x, plan_upload_place(plan, t));
    void *to = tensor_of(x, plan, i, t);
    return is_narrow(tensor) ? x->kernels->convert(x->kernels, to, from, shape_elements(&tensor->shape), e)
                             : x->kernels->move(x->kernels, to, from, graph_tensor_bytes(plan->graph, t), e);
}

/* upload_ahead waits for the LOAD before, which reads the same upload buffer, and overlaps with the calls since
 * then. */
static status_t run_load(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    const struct kernels *k = x->kernels;
    const struct graph *g = plan->graph;
    struct batch batch = { { NULL } };
    int tensors[GRAPH_BATCH], n = 0;
    TRY(x->load(x->load_ctx, i->micro_batch, &batch, e));
    if (!x->load_stays)
        TRY(step_control_stage(&x->control, &batch, e));
    for (int b = 0; b < g->n_batch; b++)
        if (plan_loads(plan, g->batch[b]) && batch.of[g->tensors[g->batch[b]].input])
            tensors[n++] = g->batch[b];
    for (int b = 0; b < n; b++) {
        const int t = tensors[b];
        const void *from = batch.of[g->tensors[t].input];
        TRY(plan->layout.uploads_ahead
                ? k->upload_ahead(k, execution_at(x, plan_upload_place(plan, t)), from, graph_batch_bytes(g, t), e)
                : load_now(x, plan, i, t, from, e));
    }
    if (!plan->layout.uploads_ahead)
        return ST_OK;
    TRY(k->ahead_await(k, e));
    for (int b = 0; b < n; b++)
        TRY(take_upload(x, plan, i, tensors[b], e));
    return k->ahead_release(k, e);
}

/* --- forward --- */

static status_t sum_into(const struct execution *x, const struct plan *plan, const struct instruction *i, int t,
                         int row, struct err *e) {
    double *to = x->control.device->losses + (size_t)row * (size_t)step_control_results(plan);
    const int64_t n = shape_elements(&plan->graph->tensors[t].shape), samples = plan->graph->micro_batch;
    if (plan->layout.kind != PLAN_EVALUATE)
        return x->kernels->sum(x->kernels, to + i->micro_batch, tensor_of(x, plan, i, t), n, e);
    return x->kernels->sum_rows(x->kernels, to + i->micro_batch * samples, tensor_of(x, plan, i, t), samples,
                                n / samples, e);
}

/* Adds the losses and reports that this op has written to the step results on the device. */
static status_t add_results(const struct execution *x, const struct plan *plan, const struct instruction *i,
                            struct err *e) {
    const struct graph *g = plan->graph;
    const struct op *op = &g->ops[i->op];
    for (int k = 0; k < OP_OUTPUTS; k++) {
        if (op->out[k] < 0)
            continue;
        if (op->out[k] == g->losses)
            TRY(sum_into(x, plan, i, g->losses, 0, e));
        for (int r = 0; r < g->n_reports; r++)
            if (op->out[k] == g->report[r].tensor)
                TRY(sum_into(x, plan, i, op->out[k], 1 + r, e));
    }
    return ST_OK;
}

static status_t run_forward(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    struct op_call c;
    fill_call(x, plan, i, i->op, &c);
    TRY(c.op->kind->forward(&c, e));
    return i->kind == INSTRUCTION_FORWARD ? add_results(x, plan, i, e) : ST_OK;
}

/* --- backward --- */

/* Whether an op's parameter gradients are added to the uses' contents: all of them or none. */
static status_t accumulates(const struct plan *plan, const struct instruction *i, bool *ret, struct err *e) {
    int uses[OP_PARAMETERS];
    bool first_writer[OP_PARAMETERS];
    int n = plan_written_uses(plan, i, uses, first_writer);
    *ret = !i->first || (n > 0 && !first_writer[0]);
    for (int k = 1; k < n; k++)
        if (first_writer[k] != first_writer[0])
            return err_set(e, ST_INTERNAL, "op %s: only some of its parameters have a gradient already",
                           plan->graph->ops[plan->graph->reverse[i->op].op].name);
    return ST_OK;
}

static status_t run_backward(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    const struct reverse_op *r = &plan->graph->reverse[i->op];
    struct op_call c;
    fill_call(x, plan, i, r->op, &c);
    const struct op_kind *kind = c.op->kind;
    for (int k = 0; k < OP_INPUTS; k++) {
        c.d_in[k] = tensor_of(x, plan, i, r->d_in[k]);
        c.accumulate[k] = r->accumulate[k];
    }
    for (int k = 0; k < OP_OUTPUTS; k++)
        c.d_out[k] = tensor_of(x, plan, i, r->d_out[k]);
    for (int k = 0; k < OP_PARAMETERS; k++)
        if (c.op->use[k] >= 0)
            c.d_param[k] = execution_use(x, plan, i->buffer, c.op->use[k]);
    TRY(accumulates(plan, i, &c.accumulate_param, e));
    if (i->kind == INSTRUCTION_BACKWARD_WEIGHT) {
        if (plan->gradient_copy[i->op] >= 0)
            c.d_out[0] = tensor_of(x, plan, i, plan->gradient_copy[i->op]);
        return kind->backward_weight(&c, e);
    }
    return kind->reverse_is_view ? ST_OK : kind->backward_input(&c, e);
}

static status_t run_copy_gradient(struct execution *x, const struct plan *plan, const struct instruction *i,
                                  struct err *e) {
    int copy = plan->gradient_copy[i->op];
    return x->kernels->move(x->kernels, tensor_of(x, plan, i, copy),
                            tensor_of(x, plan, i, plan->graph->reverse[i->op].d_out[0]), plan_tensor_bytes(plan, copy),
                            e);
}

/* --- values that are not finite --- */

/* *ret becomes false if one of n values is not finite. */
static status_t check_values(const struct execution *x, enum dtype dtype, const void *data, int64_t n, bool *ret,
                             struct err *e) {
    const struct kernels *k = x->kernels;
    bool finite = true;
    TRY(dtype == DTYPE_F32 ? k->all_finite(k, x->finite, data, n, e) : k->elements_finite(k, x->finite, data, n, e));
    TRY(k->download(k, &finite, x->finite, sizeof finite, e));
    TRY(k->finish(k, e));
    *ret = *ret && finite;
    return ST_OK;
}

static status_t check_tensor(const struct execution *x, const struct plan *plan, const struct instruction *i, int t,
                             bool *ret, struct err *e) {
    const void *data = tensor_of(x, plan, i, t);
    if (!data || plan->graph->tensors[t].dtype == DTYPE_I32)
        return ST_OK;
    const struct tensor *tensor = &plan->graph->tensors[t];
    return check_values(x, tensor->dtype, data, shape_elements(&tensor->shape), ret, e);
}

/* The gradients that a backward instruction has written, or added to, of parameters. */
static status_t check_uses(const struct execution *x, const struct plan *plan, const struct instruction *i, bool *ret,
                           struct err *e) {
    const struct graph *g = plan->graph;
    int uses[OP_PARAMETERS];
    bool first_writer[OP_PARAMETERS];
    const int n = plan_written_uses(plan, i, uses, first_writer);
    for (int k = 0; k < n; k++) {
        const struct parameter *p = &g->parameters[g->uses[uses[k]].parameter];
        if (p->kind == PARAMETER_WEIGHT)
            TRY(check_values(x, DTYPE_F32, execution_use(x, plan, i->buffer, uses[k]), shape_elements(&p->shape), ret,
                             e));
    }
    return ST_OK;
}

enum { CULPRIT_WEIGHT_BITS = 1, CULPRIT_OP_BITS = 30, CULPRIT_BATCH_BITS = 31 };
enum {
    CULPRIT_BATCH_SHIFT = CULPRIT_WEIGHT_BITS + CULPRIT_OP_BITS,
    CULPRIT_PASS_SHIFT = CULPRIT_BATCH_SHIFT + CULPRIT_BATCH_BITS
};

/* A culprit is numbered by (pass, micro-batch, op, gradient of parameters or not), so that the smallest number was
 * computed first. */
static void blame(struct execution *x, const struct instruction *i, bool weight) {
    const bool backward = i->kind == INSTRUCTION_BACKWARD_INPUT || i->kind == INSTRUCTION_BACKWARD_WEIGHT;
    const uint64_t number = (uint64_t)backward << CULPRIT_PASS_SHIFT |
                            (uint64_t)(unsigned)i->micro_batch << CULPRIT_BATCH_SHIFT |
                            (uint64_t)(unsigned)i->op << CULPRIT_WEIGHT_BITS | weight;
    if (number < *x->culprit)
        *x->culprit = number;
}

/* A gradient of a parameter that is not finite stays so when later micro-batches are added to it: the first of them
 * has the smallest number. */
static status_t scan_outputs(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    const struct graph *g = plan->graph;
    bool finite = true, uses_finite = true;
    if (i->kind == INSTRUCTION_FORWARD)
        for (int k = 0; k < OP_OUTPUTS; k++)
            TRY(check_tensor(x, plan, i, g->ops[i->op].out[k], &finite, e));
    if (i->kind == INSTRUCTION_BACKWARD_INPUT)
        for (int k = 0; k < OP_INPUTS; k++)
            TRY(check_tensor(x, plan, i, g->reverse[i->op].d_in[k], &finite, e));
    if (i->kind == INSTRUCTION_BACKWARD_INPUT || i->kind == INSTRUCTION_BACKWARD_WEIGHT)
        TRY(check_uses(x, plan, i, &uses_finite, e));
    if (!finite)
        blame(x, i, false);
    else if (!uses_finite)
        blame(x, i, true);
    return ST_OK;
}

struct culprit culprit_decode(const struct graph *g, uint64_t number) {
    const int op = (int)(number >> CULPRIT_WEIGHT_BITS & ((UINT64_C(1) << CULPRIT_OP_BITS) - 1));
    const bool backward = number >> CULPRIT_PASS_SHIFT;
    return (struct culprit){ .backward = backward,
                             .weight = number & 1,
                             .micro_batch = (int)(number >> CULPRIT_BATCH_SHIFT &
                                                  ((UINT64_C(1) << CULPRIT_BATCH_BITS) - 1)),
                             .op = g->ops[backward ? g->reverse[op].op : op].name };
}

status_t execute_op(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_LOAD: return run_load(x, plan, i, e);
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: TRY(run_forward(x, plan, i, e)); break;
    case INSTRUCTION_COPY_GRADIENT: return run_copy_gradient(x, plan, i, e);
    default: TRY(run_backward(x, plan, i, e)); break;
    }
    return x->culprit ? scan_outputs(x, plan, i, e) : ST_OK;
}
