#include "executor/engine/model/gpt.h"

#include "executor/engine/graph/op.h"

#include <math.h>
#include <stdio.h>

enum group { GROUP_INPUT, GROUP_HEAD }; /* the two uses of the tied embedding */

enum { PART_NAME = 24 }; /* "attn.c_attn.weight" */

static const double INIT_STD = 0.02, LAYERNORM_EPSILON = 1e-5;

struct builder {
    const struct gpt_shape *shape;
    struct graph *g;
    char prefix[16]; /* of the block: "h.0." */
    int wte;
};

static int matrix(struct builder *b, const char *name, struct shape shape, double std) {
    struct parameter p = { .shape = shape, .init = INIT_NORMAL, .init_std = std, .decay = true };
    snprintf(p.name, sizeof p.name, "transformer.%s%s", b->prefix, name);
    return graph_add_parameter(b->g, &p);
}

static int vector(struct builder *b, const char *name, int64_t n, enum init init) {
    struct parameter p = { .shape = SHAPE(n), .init = init };
    snprintf(p.name, sizeof p.name, "transformer.%s%s", b->prefix, name);
    return graph_add_parameter(b->g, &p);
}

static status_t add_op(struct builder *b, const struct op_kind *kind, const char *name, struct op_arguments args,
                       int out[OP_OUTPUTS], struct err *e) {
    char full[GRAPH_NAME];
    snprintf(full, sizeof full, "%s%s", b->prefix, name);
    args.name = full;
    args.n_in = (int)kind->n_in;
    return graph_add_op(b->g, kind, &args, out, e);
}

/* y = x W + b, or gelu of it. */
static status_t linear(struct builder *b, const char *name, int x, int width_out, double std, bool gelu, int *y,
                       struct err *e) {
    int64_t width_in = b->g->tensors[x].shape.dim[2];
    char weight[PART_NAME], bias[PART_NAME];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    int w = graph_slot(b->g, matrix(b, weight, SHAPE(width_in, width_out), std), GROUP_INPUT);
    int v = graph_slot(b->g, vector(b, bias, width_out, INIT_ZERO), GROUP_INPUT);
    struct op_arguments args = { .in = { x }, .slot = { w, v }, .n_slots = 2 };
    int out[OP_OUTPUTS];
    TRY(add_op(b, gelu ? &op_linear_gelu : &op_linear, name, args, out, e));
    *y = out[0];
    return ST_OK;
}

/* y = norm(x), or with a branch: r = x + branch, y = norm(r). */
static status_t norm(struct builder *b, const char *name, int x, int branch, int *r, int *y, struct err *e) {
    int64_t width = b->g->tensors[x].shape.dim[2];
    char weight[PART_NAME], bias[PART_NAME];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    int w = graph_slot(b->g, vector(b, weight, width, INIT_ONE), GROUP_INPUT);
    int v = graph_slot(b->g, vector(b, bias, width, INIT_ZERO), GROUP_INPUT);
    struct op_arguments args = {
        .in = { x, branch }, .slot = { w, v }, .n_slots = 2, .attr.epsilon = LAYERNORM_EPSILON
    };
    int out[OP_OUTPUTS];
    if (branch < 0) {
        TRY(add_op(b, &op_layernorm, name, args, out, e));
        *y = out[0];
        return ST_OK;
    }
    TRY(add_op(b, &op_residual_layernorm, name, args, out, e));
    *r = out[0];
    *y = out[1];
    return ST_OK;
}

static status_t dropout(struct builder *b, const char *name, int *x, struct err *e) {
    if (b->shape->dropout == 0)
        return ST_OK;
    struct op_arguments args = { .in = { *x }, .attr.dropout = b->shape->dropout };
    int out[OP_OUTPUTS];
    TRY(add_op(b, &op_dropout, name, args, out, e));
    *x = out[0];
    return ST_OK;
}

static status_t embedding_block(struct builder *b, struct err *e) {
    graph_begin_block(b->g, "embedding");
    int wpe = matrix(b, "wpe.weight", SHAPE(b->shape->context, b->shape->width), INIT_STD);
    struct op_arguments args = { .in = { b->g->tokens },
                                 .slot = { graph_slot(b->g, b->wte, GROUP_INPUT), graph_slot(b->g, wpe, GROUP_INPUT) },
                                 .n_slots = 2 };
    int out[OP_OUTPUTS];
    TRY(add_op(b, &op_embedding, "embedding", args, out, e));
    TRY(dropout(b, "drop", &out[0], e));
    graph_end_block(b->g, out[0]);
    return ST_OK;
}

static status_t transformer_block(struct builder *b, int layer, struct err *e) {
    const int width = b->shape->width;
    const double residual_std = INIT_STD / sqrt(2.0 * b->shape->layers);
    char name[PART_NAME];
    snprintf(name, sizeof name, "h.%d", layer);
    snprintf(b->prefix, sizeof b->prefix, "h.%d.", layer);
    graph_begin_block(b->g, name);
    int x = b->g->blocks[b->g->n_blocks - 1].input, n, qkv, a, f, r = -1;
    TRY(norm(b, "ln_1", x, -1, NULL, &n, e));
    TRY(linear(b, "attn.c_attn", n, 3 * width, INIT_STD, false, &qkv, e));
    struct op_arguments attention = { .in = { qkv },
                                      .attr = { .heads = b->shape->heads, .dropout = b->shape->dropout } };
    int out[OP_OUTPUTS];
    TRY(add_op(b, &op_attention, "attn", attention, out, e));
    TRY(linear(b, "attn.c_proj", out[0], width, residual_std, false, &a, e));
    TRY(dropout(b, "attn.drop", &a, e));
    TRY(norm(b, "ln_2", x, a, &r, &n, e));
    TRY(linear(b, "mlp.c_fc", n, 4 * width, INIT_STD, true, &f, e));
    TRY(linear(b, "mlp.c_proj", f, width, residual_std, false, &f, e));
    TRY(dropout(b, "mlp.drop", &f, e));
    struct op_arguments add = { .in = { r, f } };
    TRY(add_op(b, &op_add, "residual", add, out, e));
    graph_end_block(b->g, out[0]);
    return ST_OK;
}

static status_t head_block(struct builder *b, struct err *e) {
    b->prefix[0] = 0;
    graph_begin_block(b->g, "head");
    int x = b->g->blocks[b->g->n_blocks - 1].input, n, out[OP_OUTPUTS];
    TRY(norm(b, "ln_f", x, -1, NULL, &n, e));
    struct op_arguments head = {
        .in = { n }, .slot = { graph_slot(b->g, b->wte, GROUP_HEAD) }, .n_slots = 1, .attr.transposed = true
    };
    TRY(add_op(b, &op_linear, "lm_head", head, out, e));
    b->g->logits = out[0];
    struct op_arguments loss = { .in = { out[0], b->g->targets } };
    TRY(add_op(b, &op_cross_entropy, "loss", loss, out, e));
    b->g->losses = out[0];
    graph_end_block(b->g, -1);
    return ST_OK;
}

static status_t check(const struct gpt_shape *s, int micro_batch, struct err *e) {
    if (s->layers < 1 || s->width < 1 || s->context < 1 || s->vocabulary < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "model.gpt: layers, width, context and vocabulary must be at least 1");
    if (s->heads < 1 || s->width % s->heads)
        return err_set(e, ST_INVALID_ARGUMENT, "model.gpt.heads: %d does not divide width %d", s->heads, s->width);
    if (!(s->dropout >= 0 && s->dropout < 1))
        return err_set(e, ST_INVALID_ARGUMENT, "model.gpt.dropout: %g is not in [0, 1)", s->dropout);
    if (micro_batch < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "train.micro_batch: %d is less than 1", micro_batch);
    return ST_OK;
}

status_t gpt_build(const struct gpt_shape *shape, int micro_batch, struct graph **ret, struct err *e) {
    TRY(check(shape, micro_batch, e));
    CLEANUP(graph_freep) struct graph *g = graph_new();
    struct builder b = { .shape = shape, .g = g };
    g->micro_batch = micro_batch;
    g->targets_per_sample = shape->context;
    g->tokens = graph_add_batch(g, "tokens", DTYPE_I32, SHAPE(micro_batch, shape->context));
    g->targets = graph_add_batch(g, "targets", DTYPE_I32, SHAPE(micro_batch, shape->context));
    b.wte = matrix(&b, "wte.weight", SHAPE(shape->vocabulary, shape->width), INIT_STD);
    TRY(embedding_block(&b, e));
    for (int i = 0; i < shape->layers; i++)
        TRY(transformer_block(&b, i, e));
    TRY(head_block(&b, e));
    TRY(graph_differentiate(g, e));
    *ret = take_ptr(&g);
    return ST_OK;
}
