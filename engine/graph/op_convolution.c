#include "engine/graph/op.h"

/* x (B,H,W,in), channels last; uses: weight (out, in, kernel, kernel) and an optional bias (out).
 * convolution: y (B,H',W',out) = x * W + b. convolution_relu: y = max(., 0) of it.
 */

static struct convolution_dims dims(const struct graph *g, const struct op *op) {
    const struct shape *x = &g->tensors[op->in[0]].shape;
    const struct shape *w = &g->parameters[g->uses[op->use[0]].parameter].shape;
    return (struct convolution_dims){ .batch = x->dim[0],
                                      .height = x->dim[1],
                                      .width = x->dim[2],
                                      .in = x->dim[3],
                                      .out = w->dim[0],
                                      .kernel = w->dim[2],
                                      .stride = op->attr.stride,
                                      .padding = op->attr.padding };
}

static struct linear_dims rows(const struct graph *g, const struct op *op) {
    const struct shape *y = &g->tensors[op->out[0]].shape;
    return (struct linear_dims){ .rows = shape_elements(y) / y->dim[3], .in = 1, .out = y->dim[3] };
}

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    const struct shape *w = &g->parameters[g->uses[op->use[0]].parameter].shape;
    struct convolution_dims d = dims(g, op);
    if (w->dim[1] != d.in || d.height + 2 * d.padding < d.kernel || d.width + 2 * d.padding < d.kernel)
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: a window of %lld x %lld x %lld does not fit %lld x %lld x %lld",
                       op->name, (long long)w->dim[1], (long long)d.kernel, (long long)d.kernel, (long long)d.in,
                       (long long)d.height, (long long)d.width);
    graph_add_output(g, op, 0, "", SHAPE(d.batch, convolution_side(&d, d.height), convolution_side(&d, d.width), d.out),
                     -1);
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    struct convolution_dims d = dims(c->graph, c->op);
    TRY(c->kernels->convolution_forward(c->kernels, c->out[0], c->in[0], c->param[0], c->param[1], &d, c->workspace,
                                        e));
    if (c->op->kind != &op_convolution_relu)
        return ST_OK;
    return c->kernels->relu_forward(c->kernels, c->out[0], c->out[0],
                                    shape_elements(&c->graph->tensors[c->op->out[0]].shape), e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    struct convolution_dims d = dims(c->graph, c->op);
    struct linear_dims l = rows(c->graph, c->op);
    if (c->op->kind == &op_convolution_relu)
        TRY(c->kernels->relu_backward(c->kernels, c->d_out[0], c->d_out[0], c->out[0], l.rows * l.out, e));
    if (c->d_param[1])
        TRY(c->kernels->linear_backward_bias(c->kernels, c->d_param[1], c->d_out[0], NULL, &l, c->accumulate_param,
                                             c->workspace, e));
    if (!c->d_in[0])
        return ST_OK;
    return c->kernels->convolution_backward_input(c->kernels, c->d_in[0], c->d_out[0], c->param[0], &d,
                                                  c->accumulate[0], c->workspace, e);
}

static status_t backward_weight(const struct op_call *c, struct err *e) {
    struct convolution_dims d = dims(c->graph, c->op);
    return c->kernels->convolution_backward_weight(c->kernels, c->d_param[0], c->in[0], c->d_out[0], &d,
                                                   c->accumulate_param, c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    struct convolution_dims d = dims(g, op);
    struct linear_dims l = rows(g, op);
    size_t bias = k->linear_backward_bias_workspace(k, &l), all = k->convolution_workspace(k, &d);
    return bias > all ? bias : all;
}

/* A 1 x 1 convolution is a linear layer over its output's pixels. */
static int linears(const struct graph *g, const struct op *op, struct linear_dims *ret) {
    const struct convolution_dims d = dims(g, op);
    if (d.kernel != 1 || d.padding != 0)
        return 0;
    *ret = (struct linear_dims){ .rows = rows(g, op).rows, .in = d.in, .out = d.out, .transposed = true };
    return 1;
}

static double flops(const struct graph *g, const struct op *op) {
    struct convolution_dims d = dims(g, op);
    return 2.0 * (double)shape_elements(&g->tensors[op->out[0]].shape) * (double)(d.in * d.kernel * d.kernel);
}

const struct op_kind op_convolution = {
    .name = "convolution",
    .n_in = 1,
    .n_uses_min = 1,
    .saved_in = IN(0),
    .differentiable = IN(0),
    .accumulates = IN(0),
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .workspace = workspace,
    .linears = linears,
    .flops = flops,
};

const struct op_kind op_convolution_relu = {
    .name = "convolution_relu",
    .n_in = 1,
    .n_uses_min = 1,
    .saved_in = IN(0),
    .saved_out = OUT(0),
    .differentiable = IN(0),
    .accumulates = IN(0),
    .d_out_scratch = true,
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .workspace = workspace,
    .linears = linears,
    .flops = flops,
};
