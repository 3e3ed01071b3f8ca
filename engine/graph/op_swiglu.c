#include "engine/graph/op.h"

/* gate_up (B, T, 2 width): a row's gates, then its ups -> y (B, T, width) = silu(gate) up. */

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    struct shape y = g->tensors[op->in[0]].shape;
    y.dim[y.n - 1] /= 2;
    graph_add_output(g, op, 0, "", y, -1);
    return ST_OK;
}

static const struct shape *output(const struct op_call *c) { return &c->graph->tensors[c->op->out[0]].shape; }

static status_t forward(const struct op_call *c, struct err *e) {
    const int64_t width = output(c)->dim[output(c)->n - 1];
    return c->kernels->swiglu_forward(c->kernels, c->out[0], c->in[0], shape_elements(output(c)) / width, width, e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    const int64_t width = output(c)->dim[output(c)->n - 1];
    return c->kernels->swiglu_backward(c->kernels, c->d_in[0], c->d_out[0], c->in[0], shape_elements(output(c)) / width,
                                       width, e);
}

const struct op_kind op_swiglu = {
    .name = "swiglu",
    .n_in = 1,
    .saved_in = IN(0),
    .differentiable = IN(0),
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
};
