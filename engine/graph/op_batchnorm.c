#include "engine/graph/op.h"

/* x (B,H,W,C) -> y = (x - mean) / sqrt(variance + epsilon) gamma + beta, where attr.relu max(., 0) of it; with
 * batchnorm_residual, residual is added before that. Uses: gamma, beta, running mean, running variance (C), the latter
 * two statistics: training uses the micro-batch's own moments and gives them out as the statistics' gradients,
 * evaluation uses the running ones, in fp32 as their masters are. */

static struct batchnorm_dims dims(const struct graph *g, const struct op *op) {
    const struct shape *x = &g->tensors[op->in[0]].shape;
    const int64_t width = x->dim[x->n - 1];
    return (struct batchnorm_dims){
        .rows = shape_elements(x) / width, .width = width, .epsilon = (float)op->attr.epsilon, .relu = op->attr.relu
    };
}

static bool has_residual(const struct op *op) { return op->kind == &op_batchnorm_residual; }

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    struct shape x = g->tensors[op->in[0]].shape;
    if (has_residual(op) && shape_elements(&g->tensors[op->in[1]].shape) != shape_elements(&x))
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: the residual has another shape", op->name);
    graph_add_output(g, op, 0, "", x, -1);
    graph_add_statistic(g, op, 1, ".mean", SHAPE(x.dim[x.n - 1]));
    graph_add_statistic(g, op, 2, ".variance", SHAPE(x.dim[x.n - 1]));
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    struct batchnorm_dims d = dims(c->graph, c->op);
    const element_t *residual = has_residual(c->op) ? c->in[1] : NULL;
    if (!c->training)
        return c->kernels->batchnorm_apply(c->kernels, c->out[0], c->in[0], residual, c->param[0], c->param[1],
                                           c->param[2], c->param[3], &d, e);
    return c->kernels->batchnorm_forward(c->kernels, c->out[0], c->out[1], c->out[2], c->in[0], residual, c->param[0],
                                         c->param[1], &d, c->workspace, e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    struct batchnorm_dims d = dims(c->graph, c->op);
    return c->kernels->batchnorm_backward(c->kernels, c->d_in[0], has_residual(c->op) ? c->d_in[1] : NULL,
                                          c->d_param[0], c->d_param[1], c->d_param[2], c->d_param[3], c->d_out[0],
                                          c->in[0], c->out[0], c->out[1], c->out[2], c->param[0], &d,
                                          c->accumulate_param, c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    struct batchnorm_dims d = dims(g, op);
    return k->batchnorm_workspace(k, &d);
}

const struct op_kind op_batchnorm = {
    .name = "batchnorm",
    .n_in = 1,
    .n_uses_min = 4,
    .saved_in = IN(0),
    .saved_out = OUT(0) | OUT(1) | OUT(2),
    .differentiable = IN(0),
    .gradient_alias = { 1 },
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .workspace = workspace,
};

const struct op_kind op_batchnorm_residual = {
    .name = "batchnorm_residual",
    .n_in = 2,
    .n_uses_min = 4,
    .saved_in = IN(0),
    .saved_out = OUT(0) | OUT(1) | OUT(2),
    .differentiable = IN(0) | IN(1),
    .gradient_alias = { 0, 1 },
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .workspace = workspace,
};
