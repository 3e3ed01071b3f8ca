#include "executor/engine/graph/op.h"

/* qkv (B,T,3C) packed; out (B,T,C); keeps the log-sum-exp of the scores (B,H,T). Causal; dropout on the probabilities.
 */

static struct attention_dims dims(const struct graph *g, const struct op *op) {
    const struct shape *y = &g->tensors[op->out[0]].shape;
    return (
        struct attention_dims){ .batch = y->dim[0], .time = y->dim[1], .width = y->dim[2], .heads = op->attr.heads };
}

static struct dropout mask(const struct op_call *c) {
    return (struct dropout){ .probability = c->training ? (float)c->op->attr.dropout : 0,
                             .key = { .seed = c->seed, .step = c->step, .op = c->op->id },
                             .first_sample = c->first_sample };
}

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    struct shape qkv = g->tensors[op->in[0]].shape;
    int64_t width = qkv.dim[2] / 3;
    if (qkv.dim[2] % 3 || width % op->attr.heads)
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: %d heads do not divide width %lld", op->name, op->attr.heads,
                       (long long)width);
    graph_add_output(g, op, 0, "", SHAPE(qkv.dim[0], qkv.dim[1], width), -1);
    graph_add_output(g, op, 1, ".lse", SHAPE(qkv.dim[0], op->attr.heads, qkv.dim[1]), -1);
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    struct attention_dims d = dims(c->graph, c->op);
    struct dropout dropout = mask(c);
    return c->kernels->attention_forward(c->kernels, c->out[0], c->out[1], c->in[0], &d, &dropout, c->workspace, e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    struct attention_dims d = dims(c->graph, c->op);
    struct dropout dropout = mask(c);
    return c->kernels->attention_backward(c->kernels, c->d_in[0], c->d_out[0], c->in[0], c->out[0], c->out[1], &d,
                                          &dropout, c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    struct attention_dims d = dims(g, op);
    return k->attention_workspace(k, &d);
}

/* Scores and their product with v, over the whole square, as the literature counts them. */
static double flops(const struct graph *g, const struct op *op) {
    struct attention_dims d = dims(g, op);
    return 4.0 * (double)d.batch * (double)d.time * (double)d.time * (double)d.width;
}

const struct op_kind op_attention = {
    .name = "attention",
    .n_in = 1,
    .saved_in = IN(0),
    .saved_out = OUT(0) | OUT(1),
    .differentiable = IN(0),
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .workspace = workspace,
    .flops = flops,
};
