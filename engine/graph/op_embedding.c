#include "engine/graph/op.h"

/* tokens (B,T); uses: token table (V,C) and, where the model has one, position table (positions, C). out: (B,T,C). */

static const struct shape *use_shape(const struct graph *g, const struct op *op, int i) {
    return &g->parameters[g->uses[op->use[i]].parameter].shape;
}

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    const struct shape *tokens = &g->tensors[op->in[0]].shape, *wte = use_shape(g, op, 0);
    const struct shape *wpe = op->use[1] >= 0 ? use_shape(g, op, 1) : NULL;
    if (wpe && (tokens->dim[1] > wpe->dim[0] || wte->dim[1] != wpe->dim[1]))
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: %lld positions do not fit a table of %lld", op->name,
                       (long long)tokens->dim[1], (long long)wpe->dim[0]);
    graph_add_output(g, op, 0, "", SHAPE(tokens->dim[0], tokens->dim[1], wte->dim[1]), -1);
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    const struct shape *y = &c->graph->tensors[c->op->out[0]].shape;
    return c->kernels->embedding_forward(c->kernels, c->out[0], c->in[0], c->param[0], c->param[1], y->dim[0],
                                         y->dim[1], y->dim[2], use_shape(c->graph, c->op, 0)->dim[0], e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    const struct shape *y = &c->graph->tensors[c->op->out[0]].shape;
    return c->kernels->embedding_backward(c->kernels, c->d_param[0], c->d_param[1], c->in[0], c->d_out[0], y->dim[0],
                                          y->dim[1], y->dim[2], use_shape(c->graph, c->op, 0)->dim[0],
                                          c->op->use[1] >= 0 ? use_shape(c->graph, c->op, 1)->dim[0] : 0,
                                          c->accumulate_param, c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    const struct shape *y = &g->tensors[op->out[0]].shape;
    return k->embedding_backward_workspace(k, y->dim[0], y->dim[1], y->dim[2]);
}

const struct op_kind op_embedding = {
    .name = "embedding",
    .n_in = 1,
    .n_uses_min = 1,
    .saved_in = IN(0),
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .workspace = workspace,
};
