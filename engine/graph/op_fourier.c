#include "engine/graph/op.h"

/* fourier_adjoint: measured (B,2,H,W), mask (B,1,H,W) -> x (B,H,W,1) = Re F* M measured.
 * fourier_step: x, update, measured, mask -> y = x - eta Re F* M (F x - measured) + update, in update's place; use:
 * eta (1). */

static struct fourier_dims dims(const struct graph *g, const struct op *op) {
    const struct shape *y = &g->tensors[op->out[0]].shape;
    return (struct fourier_dims){ .batch = y->dim[0], .height = y->dim[1], .width = y->dim[2] };
}

static bool power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

static status_t shape_adjoint(struct graph *g, struct op *op, struct err *e) {
    struct shape m = g->tensors[op->in[1]].shape;
    if (!power_of_two(m.dim[2]) || !power_of_two(m.dim[3]))
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: sides of %lld x %lld pixels are no powers of two", op->name,
                       (long long)m.dim[2], (long long)m.dim[3]);
    graph_add_output(g, op, 0, "", SHAPE(m.dim[0], m.dim[2], m.dim[3], 1), -1);
    return ST_OK;
}

static status_t forward_adjoint(const struct op_call *c, struct err *e) {
    struct fourier_dims d = dims(c->graph, c->op);
    return c->kernels->fourier_adjoint(c->kernels, c->out[0], c->in[0], c->in[1], &d, c->workspace, e);
}

static status_t shape_step(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    graph_add_output(g, op, 0, "", g->tensors[op->in[0]].shape, op->in[1]);
    return ST_OK;
}

static status_t forward_step(const struct op_call *c, struct err *e) {
    struct fourier_dims d = dims(c->graph, c->op);
    return c->kernels->fourier_step_forward(c->kernels, c->out[0], c->in[0], c->in[1], c->param[0], c->in[2], c->in[3],
                                            &d, c->workspace, e);
}

static status_t backward_step(const struct op_call *c, struct err *e) {
    struct fourier_dims d = dims(c->graph, c->op);
    return c->kernels->fourier_step_backward(c->kernels, c->d_in[0], c->d_param[0], c->d_out[0], c->in[0], c->param[0],
                                             c->in[2], c->in[3], &d, c->accumulate_param, c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    struct fourier_dims d = dims(g, op);
    return k->fourier_workspace(k, &d);
}

const struct op_kind op_fourier_adjoint = {
    .name = "fourier_adjoint",
    .n_in = 2,
    .shape = shape_adjoint,
    .forward = forward_adjoint,
    .workspace = workspace,
};

const struct op_kind op_fourier_step = {
    .name = "fourier_step",
    .n_in = 4,
    .n_uses_min = 1,
    .saved_in = IN(0) | IN(2) | IN(3),
    .differentiable = IN(0) | IN(1),
    .gradient_alias = { 0, 1 },
    .shape = shape_step,
    .forward = forward_step,
    .backward_input = backward_step,
    .workspace = workspace,
};
