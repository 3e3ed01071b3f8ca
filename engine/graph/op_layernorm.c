#include "engine/graph/op.h"

/* layernorm: y (B,T,C) = norm(x) gamma + beta; keeps mean and rstd (B,T).
 * residual_layernorm: r = x + branch in the branch's place, y = norm(r) gamma + beta. r's gradient is needed (it is the
 * residual stream), takes in the norm's, and is the gradient of both x and the branch. */

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    bool residual = op->kind == &op_residual_layernorm;
    struct shape x = g->tensors[op->in[0]].shape, rows = SHAPE(x.dim[0], x.dim[1]);
    int o = 0;
    if (residual)
        graph_add_output(g, op, o++, ".sum", x, op->in[1]);
    graph_add_output(g, op, o++, "", x, -1);
    graph_add_statistic(g, op, o++, ".mean", rows);
    graph_add_statistic(g, op, o, ".rstd", rows);
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    const struct shape *x = &c->graph->tensors[c->op->in[0]].shape;
    int o = c->op->kind == &op_residual_layernorm;
    return c->kernels->layernorm_forward(c->kernels, c->out[o], o ? c->out[0] : NULL, c->out[o + 1], c->out[o + 2],
                                         c->in[0], o ? c->in[1] : NULL, c->param[0], c->param[1], x->dim[0] * x->dim[1],
                                         x->dim[2], (float)c->op->attr.epsilon, e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    const struct shape *x = &c->graph->tensors[c->op->in[0]].shape;
    int o = c->op->kind == &op_residual_layernorm;
    const element_t *addend = o ? c->d_out[0] : c->accumulate[0] ? c->d_in[0] : NULL;
    return c->kernels->layernorm_backward(c->kernels, c->d_in[0], c->d_param[0], c->d_param[1], c->d_out[o], addend,
                                          o ? c->out[0] : c->in[0], c->out[o + 1], c->out[o + 2], c->param[0],
                                          x->dim[0] * x->dim[1], x->dim[2], c->accumulate_param, c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    const struct shape *x = &g->tensors[op->in[0]].shape;
    return k->layernorm_backward_workspace(k, x->dim[0] * x->dim[1], x->dim[2]);
}

const struct op_kind op_layernorm = {
    .name = "layernorm",
    .n_in = 1,
    .n_uses_min = 2,
    .saved_in = IN(0),
    .saved_out = OUT(1) | OUT(2),
    .differentiable = IN(0),
    .accumulates = IN(0),
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .workspace = workspace,
};

const struct op_kind op_residual_layernorm = {
    .name = "residual_layernorm",
    .n_in = 2,
    .n_uses_min = 2,
    .saved_out = OUT(0) | OUT(2) | OUT(3),
    .differentiable = IN(0) | IN(1),
    .gradient_alias = { 1, 1 },
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .workspace = workspace,
};
