#include "engine/graph/op.h"

/* add: y = a + b in b's place; both gradients are y's.
 * branch: y = x, copied. Its gradient can be added to the gradient that x already has, so any number of ops may read
 * one tensor through branches, even ops whose kinds cannot add to a gradient.
 * dropout: y = x under a mask, in x's place. Its backward pass applies the same mask, but not in place: the gradient of
 * the residual stream shares the bytes of y's gradient (add), and is still needed. */

static status_t shape_add(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    graph_add_output(g, op, 0, "", g->tensors[op->in[0]].shape, op->in[1]);
    return ST_OK;
}

static status_t shape_dropout(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    graph_add_output(g, op, 0, "", g->tensors[op->in[0]].shape, op->in[0]);
    return ST_OK;
}

static int64_t elements(const struct op_call *c) { return shape_elements(&c->graph->tensors[c->op->out[0]].shape); }

static status_t forward_add(const struct op_call *c, struct err *e) {
    return c->kernels->add(c->kernels, c->out[0], c->in[0], c->in[1], elements(c), e);
}

static status_t mask(const struct op_call *c, element_t *y, const element_t *x, struct err *e) {
    int64_t samples = c->graph->tensors[c->op->out[0]].shape.dim[0];
    struct dropout dropout = { .probability = c->training ? (float)c->op->attr.dropout : 0,
                               .key = { .seed = c->seed, .step = c->step, .op = c->op->id },
                               .first_sample = c->first_sample };
    if (dropout.probability == 0 && y == x)
        return ST_OK;
    return c->kernels->dropout(c->kernels, y, x, samples, elements(c) / samples, &dropout, e);
}

static status_t forward_dropout(const struct op_call *c, struct err *e) { return mask(c, c->out[0], c->in[0], e); }
static status_t backward_dropout(const struct op_call *c, struct err *e) { return mask(c, c->d_in[0], c->d_out[0], e); }

const struct op_kind op_add = {
    .name = "add",
    .n_in = 2,
    .differentiable = IN(0) | IN(1),
    .gradient_alias = { 1, 1 },
    .reverse_is_view = true,
    .shape = shape_add,
    .forward = forward_add,
};

static status_t shape_branch(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    graph_add_output(g, op, 0, "", g->tensors[op->in[0]].shape, -1);
    return ST_OK;
}

static status_t forward_branch(const struct op_call *c, struct err *e) {
    return c->kernels->copy(c->kernels, c->out[0], c->in[0], elements(c), e);
}

static status_t backward_branch(const struct op_call *c, struct err *e) {
    if (c->accumulate[0])
        return c->kernels->add(c->kernels, c->d_in[0], c->d_out[0], c->d_in[0], elements(c), e);
    return c->kernels->copy(c->kernels, c->d_in[0], c->d_out[0], elements(c), e);
}

const struct op_kind op_branch = {
    .name = "branch",
    .n_in = 1,
    .differentiable = IN(0),
    .accumulates = IN(0),
    .shape = shape_branch,
    .forward = forward_branch,
    .backward_input = backward_branch,
};

const struct op_kind op_dropout = {
    .name = "dropout",
    .n_in = 1,
    .differentiable = IN(0),
    .shape = shape_dropout,
    .forward = forward_dropout,
    .backward_input = backward_dropout,
};
