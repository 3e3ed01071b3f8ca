#include "executor/engine/graph/op.h"

/* logits (B,T,V), targets (B,T) -> losses (B,T). In training the logits become their gradient in the same pass, so that
 * nothing of the size of the logits is kept. */

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    struct shape logits = g->tensors[op->in[0]].shape;
    graph_add_output(g, op, 0, "", SHAPE(logits.dim[0], logits.dim[1]), -1);
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    const struct shape *logits = &c->graph->tensors[c->op->in[0]].shape;
    return c->kernels->cross_entropy(c->kernels, c->out[0], c->in[0], c->in[1], logits->dim[0] * logits->dim[1],
                                     logits->dim[2], c->loss_scale, c->training, e);
}

const struct op_kind op_cross_entropy = {
    .name = "cross_entropy",
    .n_in = 2,
    .differentiable = IN(0),
    .gradient_in_forward = true,
    .shape = shape,
    .forward = forward,
};
