#include "engine/graph/op_heads.h"

/* qkv (B, T, (heads + 2 kv_heads) head) packed; out (B, T, heads head); keeps the log-sum-exp of the scores
 * (B, heads, T). Dropout on the probabilities. */

static struct dropout mask(const struct op_call *c) {
    return (struct dropout){ .probability = c->training ? (float)c->op->attr.dropout : 0,
                             .key = { .seed = c->seed, .step = c->step, .op = c->op->id },
                             .first_sample = c->first_sample };
}

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    struct attention_dims d = op_heads(g, op);
    struct shape qkv = g->tensors[op->in[0]].shape;
    if (d.head * (d.heads + 2 * d.kv_heads) != qkv.dim[2] || d.heads % d.kv_heads)
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: %lld heads on %lld do not divide width %lld", op->name,
                       (long long)d.heads, (long long)d.kv_heads, (long long)qkv.dim[2]);
    graph_add_output(g, op, 0, "", SHAPE(d.batch, d.time, d.heads * d.head), -1);
    graph_add_statistic(g, op, 1, ".lse", SHAPE(d.batch, d.heads, d.time));
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    struct attention_dims d = op_heads(c->graph, c->op);
    struct dropout dropout = mask(c);
    return c->kernels->attention_forward(c->kernels, c->out[0], c->out[1], c->in[0], &d, &dropout, c->workspace, e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    struct attention_dims d = op_heads(c->graph, c->op);
    struct dropout dropout = mask(c);
    return c->kernels->attention_backward(c->kernels, c->d_in[0], c->d_out[0], c->in[0], c->out[0], c->out[1], &d,
                                          &dropout, c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    struct attention_dims d = op_heads(g, op);
    return k->attention_workspace(k, &d);
}

/* Scores and their product with v, over the whole square, as the literature counts them. */
static double flops(const struct graph *g, const struct op *op) {
    struct attention_dims d = op_heads(g, op);
    return 4.0 * (double)d.batch * (double)d.time * (double)d.time * (double)(d.heads * d.head);
}

const struct op_kind op_attention = {
    .name = "attention",
    .n_in = 1,
    .saved_in = IN(0),
    .saved_out = OUT(0) | OUT(1),
    .differentiable = IN(0),
    .shape = shape,
    .forward = forward,
    .selective = true,
    .backward_input = backward_input,
    .workspace = workspace,
    .flops = flops,
};
