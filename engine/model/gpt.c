#include "engine/model/builder.h"
#include "engine/model/model.h"

#include <math.h>

enum use { USE_INPUT, USE_HEAD }; /* the two uses of the tied embedding */

static const double INIT_STD = 0.02, LAYERNORM_EPSILON = 1e-5;

static status_t linear(struct builder *b, const char *name, int x, int width_out, double std, bool gelu, int *y,
                       struct err *e) {
    return builder_linear(
        b, &(struct linear_layer){ .name = name, .out = width_out, .std = std, .bias = true, .gelu = gelu }, x, y, e);
}

/* Queries, keys and values side by side: three matrices in one. */
static status_t qkv_linear(struct builder *b, int x, int width, int *y, struct err *e) {
    const struct linear_layer layer = {
        .name = "attn.c_attn", .out = 3 * width, .std = INIT_STD, .bias = true, .packed = 3
    };
    return builder_linear(b, &layer, x, y, e);
}

static status_t norm(struct builder *b, const char *name, int x, int branch, int *r, int *y, struct err *e) {
    return builder_layernorm(b, name, LAYERNORM_EPSILON, x, branch, r, y, e);
}

static status_t embedding_block(struct builder *b, const struct gpt_shape *s, int wte, struct err *e) {
    builder_block(b, "embedding");
    int x, wpe = builder_table(b, "wpe.weight", SHAPE(s->context, s->width), INIT_STD);
    struct op_arguments args = { .in = { b->g->tokens },
                                 .use = { graph_use(b->g, wte, USE_INPUT), graph_use(b->g, wpe, USE_INPUT) },
                                 .n_uses = 2 };
    TRY(builder_op(b, &op_embedding, "embedding", args, &x, NULL, e));
    TRY(builder_dropout(b, "drop", s->dropout, &x, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t transformer_block(struct builder *b, const struct gpt_shape *s, int layer, struct err *e) {
    /* 2 * layers projections add to the residual stream. The factor keeps the sum at the scale of one projection. */
    const double residual_std = INIT_STD / sqrt(2.0 * s->layers);
    builder_prefix(b, "h.%d.", layer);
    int x = builder_block(b, "h.%d", layer), n, qkv, a, f, r = -1;
    TRY(norm(b, "ln_1", x, -1, NULL, &n, e));
    TRY(qkv_linear(b, n, s->width, &qkv, e));
    struct op_arguments attention = { .in = { qkv },
                                      .attr = { .heads = s->heads, .causal = true, .dropout = s->dropout } };
    TRY(builder_op(b, &op_attention, "attn", attention, &a, NULL, e));
    TRY(linear(b, "attn.c_proj", a, s->width, residual_std, false, &a, e));
    TRY(builder_dropout(b, "attn.drop", s->dropout, &a, e));
    TRY(norm(b, "ln_2", x, a, &r, &n, e));
    TRY(linear(b, "mlp.c_fc", n, 4 * s->width, INIT_STD, true, &f, e));
    TRY(linear(b, "mlp.c_proj", f, s->width, residual_std, false, &f, e));
    TRY(builder_dropout(b, "mlp.drop", s->dropout, &f, e));
    TRY(builder_add(b, "residual", r, f, &x, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t head_block(struct builder *b, int wte, struct err *e) {
    builder_prefix(b, "%s", "");
    int x = builder_block(b, "head"), n;
    TRY(norm(b, "ln_f", x, -1, NULL, &n, e));
    struct op_arguments head = {
        .in = { n }, .use = { graph_use(b->g, wte, USE_HEAD) }, .n_uses = 1, .attr.transposed = true
    };
    TRY(builder_op(b, &op_linear, "lm_head", head, &b->g->logits, NULL, e));
    struct op_arguments loss = { .in = { b->g->logits, b->g->targets } };
    TRY(builder_op(b, &op_cross_entropy, "loss", loss, &b->g->losses, NULL, e));
    graph_end_block(b->g, -1);
    return ST_OK;
}

static status_t check(const struct gpt_shape *s, struct err *e) {
    if (s->layers < 1 || s->width < 1 || s->context < 1 || s->vocabulary < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "model.gpt: layers, width, context and vocabulary must be at least 1");
    if (s->heads < 1 || s->width % s->heads)
        return err_set(e, ST_INVALID_ARGUMENT, "model.gpt.heads: %d does not divide width %d", s->heads, s->width);
    if (!(s->dropout >= 0 && s->dropout < 1))
        return err_set(e, ST_INVALID_ARGUMENT, "model.gpt.dropout: %g is not at least 0 and below 1", s->dropout);
    return ST_OK;
}

static status_t build(const void *of, const struct model_data *data, struct graph *g, struct err *e) {
    const struct gpt_shape *shape = of;
    (void)data;
    TRY(check(shape, e));
    struct builder b = { .g = g, .root = "transformer." };
    g->targets_per_sample = shape->context;
    g->tokens = graph_add_batch(g, "tokens", BATCH_TOKENS, DTYPE_I32, SHAPE(g->micro_batch, shape->context));
    g->targets = graph_add_batch(g, "targets", BATCH_TARGETS, DTYPE_I32, SHAPE(g->micro_batch, shape->context));
    int wte = builder_table(&b, "wte.weight", SHAPE(shape->vocabulary, shape->width), INIT_STD);
    TRY(embedding_block(&b, shape, wte, e));
    for (int i = 0; i < shape->layers; i++)
        TRY(transformer_block(&b, shape, i, e));
    return head_block(&b, wte, e);
}

static const struct member MEMBERS[] = {
    MEMBER_INT(struct gpt_shape, layers),     MEMBER_INT(struct gpt_shape, heads),
    MEMBER_INT(struct gpt_shape, width),      MEMBER_INT(struct gpt_shape, context),
    MEMBER_INT(struct gpt_shape, vocabulary), MEMBER_REAL(struct gpt_shape, dropout),
};

const struct model_kind model_gpt = { .name = "gpt",
                                      .samples = MODEL_TOKENS,
                                      .members = MEMBERS,
                                      .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                      .build = build };
