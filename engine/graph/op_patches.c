#include "engine/graph/op.h"

/* patches: images (B,C,H,W) -> (B, patches, C patch patch), attr.kernel pixels a side.
 * class_token: x (B,T,C) -> (B,T+1,C): a learned token, then x, plus learned positions. Uses: token (1,1,C), positions
 * (1,T+1,C).
 * first_token: x (B,T,C) -> (B,C): the first position of each sample. */

static const struct shape *shape_of(const struct graph *g, int t) { return &g->tensors[t].shape; }

static status_t shape_patches(struct graph *g, struct op *op, struct err *e) {
    const struct shape *x = shape_of(g, op->in[0]);
    const int64_t p = op->attr.kernel;
    if (x->dim[2] % p || x->dim[3] % p)
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: patches of %lld pixels do not divide %lld x %lld", op->name,
                       (long long)p, (long long)x->dim[2], (long long)x->dim[3]);
    graph_add_output(g, op, 0, "", SHAPE(x->dim[0], x->dim[2] / p * (x->dim[3] / p), x->dim[1] * p * p), -1);
    return ST_OK;
}

static status_t forward_patches(const struct op_call *c, struct err *e) {
    const struct shape *x = shape_of(c->graph, c->op->in[0]);
    return c->kernels->patches(c->kernels, c->out[0], c->in[0], x->dim[0], x->dim[1], x->dim[2], x->dim[3],
                               c->op->attr.kernel, e);
}

static status_t shape_class_token(struct graph *g, struct op *op, struct err *e) {
    const struct shape *x = shape_of(g, op->in[0]);
    const struct shape *positions = &g->parameters[g->uses[op->use[1]].parameter].shape;
    if (positions->dim[1] != x->dim[1] + 1)
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: %lld positions for %lld tokens", op->name,
                       (long long)positions->dim[1], (long long)x->dim[1] + 1);
    graph_add_output(g, op, 0, "", SHAPE(x->dim[0], x->dim[1] + 1, x->dim[2]), -1);
    return ST_OK;
}

static status_t forward_class_token(const struct op_call *c, struct err *e) {
    const struct shape *y = shape_of(c->graph, c->op->out[0]);
    return c->kernels->class_token_forward(c->kernels, c->out[0], c->in[0], c->param[0], c->param[1], y->dim[0],
                                           y->dim[1], y->dim[2], e);
}

static status_t backward_class_token(const struct op_call *c, struct err *e) {
    const struct shape *y = shape_of(c->graph, c->op->out[0]);
    return c->kernels->class_token_backward(c->kernels, c->d_in[0], c->d_param[0], c->d_param[1], c->d_out[0],
                                            y->dim[0], y->dim[1], y->dim[2], c->accumulate_param, e);
}

static status_t shape_first_token(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    const struct shape *x = shape_of(g, op->in[0]);
    graph_add_output(g, op, 0, "", SHAPE(x->dim[0], x->dim[2]), -1);
    return ST_OK;
}

static status_t forward_first_token(const struct op_call *c, struct err *e) {
    const struct shape *x = shape_of(c->graph, c->op->in[0]);
    return c->kernels->first_forward(c->kernels, c->out[0], c->in[0], x->dim[0], x->dim[1], x->dim[2], e);
}

static status_t backward_first_token(const struct op_call *c, struct err *e) {
    const struct shape *x = shape_of(c->graph, c->op->in[0]);
    return c->kernels->first_backward(c->kernels, c->d_in[0], c->d_out[0], x->dim[0], x->dim[1], x->dim[2], e);
}

/* Of batch inputs: no gradient. */
const struct op_kind op_patches = {
    .name = "patches",
    .n_in = 1,
    .shape = shape_patches,
    .forward = forward_patches,
};

const struct op_kind op_class_token = {
    .name = "class_token",
    .n_in = 1,
    .n_uses_min = 2,
    .differentiable = IN(0),
    .shape = shape_class_token,
    .forward = forward_class_token,
    .backward_input = backward_class_token,
};

const struct op_kind op_first_token = {
    .name = "first_token",
    .n_in = 1,
    .differentiable = IN(0),
    .shape = shape_first_token,
    .forward = forward_first_token,
    .backward_input = backward_first_token,
};
