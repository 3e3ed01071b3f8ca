#include "executor/engine/graph/op.h"

/* x (B,T,in); slots: weight (in, out), or (out, in) when transposed, and an optional bias (out).
 * linear: y (B,T,out) = x W + b. linear_gelu: also keeps pre = x W + b, y = gelu(pre). */

static struct linear_dims dims(const struct graph *g, const struct op *op) {
    const struct shape *x = &g->tensors[op->in[0]].shape;
    const struct shape *w = &g->parameters[g->slots[op->slot[0]].parameter].shape;
    bool t = op->attr.transposed;
    return (struct linear_dims){
        .rows = x->dim[0] * x->dim[1], .in = w->dim[t ? 1 : 0], .out = w->dim[t ? 0 : 1], .transposed = t
    };
}

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    struct linear_dims d = dims(g, op);
    struct shape x = g->tensors[op->in[0]].shape;
    if (x.dim[2] != d.in)
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: its input has width %lld, its weight takes %lld", op->name,
                       (long long)x.dim[2], (long long)d.in);
    graph_add_output(g, op, 0, "", SHAPE(x.dim[0], x.dim[1], d.out), -1);
    if (op->kind == &op_linear_gelu)
        graph_add_output(g, op, 1, ".pre", SHAPE(x.dim[0], x.dim[1], d.out), -1);
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    struct linear_dims d = dims(c->graph, c->op);
    return c->kernels->linear_forward(c->kernels, c->out[0], c->out[1], c->in[0], c->param[0], c->param[1], &d, e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    struct linear_dims d = dims(c->graph, c->op);
    if (c->out[1] || c->d_param[1])
        TRY(c->kernels->linear_backward_bias(c->kernels, c->d_param[1], c->d_out[0], c->out[1], &d, c->accumulate_param,
                                             c->workspace, e));
    return c->kernels->linear_backward_input(c->kernels, c->d_in[0], c->d_out[0], c->param[0], &d, c->accumulate[0], e);
}

static status_t backward_weight(const struct op_call *c, struct err *e) {
    struct linear_dims d = dims(c->graph, c->op);
    return c->kernels->linear_backward_weight(c->kernels, c->d_param[0], c->in[0], c->d_out[0], &d, c->accumulate_param,
                                              c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    struct linear_dims d = dims(g, op);
    size_t bias = k->linear_backward_bias_workspace(k, &d), weight = k->linear_backward_weight_workspace(k, &d);
    return bias > weight ? bias : weight;
}

static double flops(const struct graph *g, const struct op *op) {
    struct linear_dims d = dims(g, op);
    return 2.0 * (double)d.rows * (double)d.in * (double)d.out;
}

const struct op_kind op_linear = {
    .name = "linear",
    .n_in = 1,
    .n_slots_least = 1,
    .saved_in = IN(0),
    .differentiable = IN(0),
    .accumulates = IN(0),
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .workspace = workspace,
    .flops = flops,
};

const struct op_kind op_linear_gelu = {
    .name = "linear_gelu",
    .n_in = 1,
    .n_slots_least = 1,
    .saved_in = IN(0),
    .saved_out = OUT(1),
    .differentiable = IN(0),
    .accumulates = IN(0),
    .d_out_scratch = true,
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .workspace = workspace,
    .flops = flops,
};
