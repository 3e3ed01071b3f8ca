#include "engine/graph/op.h"

/* max_pool: x (B,H,W,C) -> the largest of each window of attr.kernel pixels a side.
 * average_pool: x (B,H,W,C) -> y (B,C), the mean over all pixels.
 * channels_last: x (B,C,H,W) -> y (B,H,W,C). */

static const struct shape *input(const struct graph *g, const struct op *op) { return &g->tensors[op->in[0]].shape; }

static struct convolution_dims window(const struct graph *g, const struct op *op) {
    const struct shape *x = input(g, op);
    return (struct convolution_dims){ .batch = x->dim[0],
                                      .height = x->dim[1],
                                      .width = x->dim[2],
                                      .in = x->dim[3],
                                      .out = x->dim[3],
                                      .kernel = op->attr.kernel,
                                      .stride = op->attr.stride,
                                      .padding = op->attr.padding };
}

static status_t shape_max(struct graph *g, struct op *op, struct err *e) {
    struct convolution_dims d = window(g, op);
    if (d.height + 2 * d.padding < d.kernel || d.width + 2 * d.padding < d.kernel)
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: an image of %lld x %lld is smaller than the window", op->name,
                       (long long)d.height, (long long)d.width);
    graph_add_output(g, op, 0, "", SHAPE(d.batch, convolution_side(&d, d.height), convolution_side(&d, d.width), d.in),
                     -1);
    return ST_OK;
}

static status_t forward_max(const struct op_call *c, struct err *e) {
    struct convolution_dims d = window(c->graph, c->op);
    return c->kernels->max_pool_forward(c->kernels, c->out[0], c->in[0], &d, e);
}

static status_t backward_max(const struct op_call *c, struct err *e) {
    struct convolution_dims d = window(c->graph, c->op);
    return c->kernels->max_pool_backward(c->kernels, c->d_in[0], c->d_out[0], c->in[0], &d, e);
}

static status_t shape_average(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    const struct shape *x = input(g, op);
    graph_add_output(g, op, 0, "", SHAPE(x->dim[0], x->dim[3]), -1);
    return ST_OK;
}

static status_t forward_average(const struct op_call *c, struct err *e) {
    const struct shape *x = input(c->graph, c->op);
    return c->kernels->average_pool_forward(c->kernels, c->out[0], c->in[0], x->dim[0], x->dim[1] * x->dim[2],
                                            x->dim[3], e);
}

static status_t backward_average(const struct op_call *c, struct err *e) {
    const struct shape *x = input(c->graph, c->op);
    return c->kernels->average_pool_backward(c->kernels, c->d_in[0], c->d_out[0], x->dim[0], x->dim[1] * x->dim[2],
                                             x->dim[3], e);
}

static status_t shape_last(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    struct shape x = *input(g, op);
    graph_add_output(g, op, 0, "", SHAPE(x.dim[0], x.dim[2], x.dim[3], x.dim[1]), -1);
    return ST_OK;
}

static status_t forward_last(const struct op_call *c, struct err *e) {
    const struct shape *x = input(c->graph, c->op);
    return c->kernels->channels_last(c->kernels, c->out[0], c->in[0], x->dim[0], x->dim[1], x->dim[2] * x->dim[3], e);
}

const struct op_kind op_max_pool = {
    .name = "max_pool",
    .n_in = 1,
    .saved_in = IN(0),
    .differentiable = IN(0),
    .shape = shape_max,
    .forward = forward_max,
    .backward_input = backward_max,
};

const struct op_kind op_average_pool = {
    .name = "average_pool",
    .n_in = 1,
    .differentiable = IN(0),
    .shape = shape_average,
    .forward = forward_average,
    .backward_input = backward_average,
};

/* Of batch inputs: no gradient. */
const struct op_kind op_channels_last = {
    .name = "channels_last",
    .n_in = 1,
    .shape = shape_last,
    .forward = forward_last,
};
