#include "engine/graph/op.h"

/* rmsnorm: y (..., C) = x / sqrt(avg x^2 + epsilon) gamma; keeps rstd (...).
 * residual_rmsnorm: r = x + branch in the branch's place, y = rmsnorm(r); its gradients are those of
 * residual_layernorm.
 */

static int64_t width(const struct shape *x) { return x->dim[x->n - 1]; }

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    struct shape x = g->tensors[op->in[0]].shape, rows = x;
    rows.n--;
    int o = 0;
    if (op->kind == &op_residual_rmsnorm)
        graph_add_output(g, op, o++, ".sum", x, op->in[1]);
    graph_add_output(g, op, o++, "", x, -1);
    graph_add_statistic(g, op, o, ".rstd", rows);
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    const struct shape *x = &c->graph->tensors[c->op->in[0]].shape;
    int o = c->op->kind == &op_residual_rmsnorm;
    return c->kernels->rmsnorm_forward(c->kernels, c->out[o], o ? c->out[0] : NULL, c->out[o + 1], c->in[0],
                                       o ? c->in[1] : NULL, c->param[0], shape_elements(x) / width(x), width(x),
                                       (float)c->op->attr.epsilon, e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    const struct shape *x = &c->graph->tensors[c->op->in[0]].shape;
    int o = c->op->kind == &op_residual_rmsnorm;
    const element_t *addend = o ? c->d_out[0] : c->accumulate[0] ? c->d_in[0] : NULL;
    return c->kernels->rmsnorm_backward(c->kernels, c->d_in[0], c->d_param[0], c->d_out[o], addend,
                                        o ? c->out[0] : c->in[0], c->out[o + 1], c->param[0],
                                        shape_elements(x) / width(x), width(x), c->accumulate_param, c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    const struct shape *x = &g->tensors[op->in[0]].shape;
    return k->rmsnorm_backward_workspace(k, shape_elements(x) / width(x), width(x));
}

const struct op_kind op_rmsnorm = {
    .name = "rmsnorm",
    .n_in = 1,
    .n_uses_min = 1,
    .saved_in = IN(0),
    .saved_out = OUT(1),
    .differentiable = IN(0),
    .accumulates = IN(0),
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .workspace = workspace,
};

const struct op_kind op_residual_rmsnorm = {
    .name = "residual_rmsnorm",
    .n_in = 2,
    .n_uses_min = 1,
    .saved_out = OUT(0) | OUT(2),
    .differentiable = IN(0) | IN(1),
    .gradient_alias = { 1, 1 },
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .workspace = workspace,
};
