/* Llama's blocks: the embedding, `layers` decoder blocks, and the head.
 *
 * With B samples of T tokens, x is (B,T,width) between blocks. A decoder block computes
 *
 *     n = rmsnorm(x);     a = o_proj(attention(rope(q, k, v of n)))       one packed product gives q, k and v
 *     r = x + a;          m = rmsnorm(r)                                  one op does both
 *     f = down_proj(swiglu(gate_proj(m), up_proj(m)))                     one packed product gives both inputs
 *     x = r + f
 *
 * Query heads share kv_heads keys and values. The head normalises x, and computes logits with lm_head or, if the
 * embeddings are tied, with a second use of the embedding's matrix. */
#include "engine/model/builder.h"
#include "engine/model/model.h"

#include <stdio.h>

enum use { USE_INPUT, USE_HEAD }; /* the two uses of a tied embedding */

static const double INIT_STD = 0.02;

static int weight(struct builder *b, const char *name, int64_t out, int64_t in) {
    return builder_matrix_use(b, name, SHAPE(out, in), INIT_STD);
}

/* y = rmsnorm(x); with a branch (else -1): r = x + branch, y = rmsnorm(r). */
static status_t norm(struct builder *b, const struct llama_shape *s, const char *name, int x, int branch, int *r,
                     int *y, struct err *e) {
    char gamma[48];
    int out[OP_OUTPUTS];
    snprintf(gamma, sizeof gamma, "%s.weight", name);
    struct op_arguments args = { .in = { x, branch },
                                 .use = { builder_vector_use(b, gamma, s->width, INIT_ONE) },
                                 .n_uses = 1,
                                 .attr.epsilon = s->norm_eps };
    if (branch < 0)
        return builder_op(b, &op_rmsnorm, name, args, y, NULL, e);
    TRY(builder_op(b, &op_residual_rmsnorm, name, args, r, out, e));
    *y = out[1];
    return ST_OK;
}

static status_t linear(struct builder *b, const char *name, int x, int64_t out, int *y, struct err *e) {
    return builder_linear(b, &(struct linear_layer){ .name = name, .out = out, .std = INIT_STD, .transposed = true }, x,
                          y, e);
}

static struct rope rope_of(const struct llama_shape *s) {
    const struct llama_rope_scaling *r = &s->rope_scaling;
    return (struct rope){ .theta = s->rope_theta,
                          .scaling = { .factor = r->factor,
                                       .low_frequency = r->low_freq_factor,
                                       .high_frequency = r->high_freq_factor,
                                       .context = r->original_max_position_embeddings } };
}

static status_t attention(struct builder *b, const struct llama_shape *s, int x, int *y, struct err *e) {
    const int64_t head = s->width / s->heads, kv = head * s->kv_heads;
    int qkv;
    struct op_arguments project = { .in = { x }, .n_uses = 3, .attr.transposed = true };
    project.use[0] = weight(b, "self_attn.q_proj.weight", s->width, s->width);
    project.use[1] = weight(b, "self_attn.k_proj.weight", kv, s->width);
    project.use[2] = weight(b, "self_attn.v_proj.weight", kv, s->width);
    TRY(builder_op(b, &op_linear_packed, "self_attn.qkv", project, &qkv, NULL, e));
    struct op_arguments attend = {
        .in = { qkv }, .attr = { .heads = s->heads, .kv_heads = s->kv_heads, .causal = true, .rope = rope_of(s) }
    };
    TRY(builder_op(b, &op_rope, "self_attn.rope", attend, &attend.in[0], NULL, e));
    TRY(builder_op(b, &op_attention, "self_attn", attend, y, NULL, e));
    return linear(b, "self_attn.o_proj", *y, s->width, y, e);
}

static status_t feed_forward(struct builder *b, const struct llama_shape *s, int x, int *y, struct err *e) {
    struct op_arguments project = { .in = { x }, .n_uses = 2, .attr.transposed = true };
    project.use[0] = weight(b, "mlp.gate_proj.weight", s->hidden, s->width);
    project.use[1] = weight(b, "mlp.up_proj.weight", s->hidden, s->width);
    TRY(builder_op(b, &op_linear_packed, "mlp.gate_up", project, y, NULL, e));
    TRY(builder_op(b, &op_swiglu, "mlp.act", (struct op_arguments){ .in = { *y } }, y, NULL, e));
    return linear(b, "mlp.down_proj", *y, s->width, y, e);
}

static status_t decoder_block(struct builder *b, const struct llama_shape *s, int layer, struct err *e) {
    builder_prefix(b, "layers.%d.", layer);
    int x = builder_block(b, "layers.%d", layer), n, a, f, r = -1;
    TRY(norm(b, s, "input_layernorm", x, -1, NULL, &n, e));
    TRY(attention(b, s, n, &a, e));
    TRY(norm(b, s, "post_attention_layernorm", x, a, &r, &n, e));
    TRY(feed_forward(b, s, n, &f, e));
    TRY(builder_add(b, "residual", r, f, &x, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t embedding_block(struct builder *b, int table, struct err *e) {
    int x;
    builder_block(b, "embed_tokens");
    struct op_arguments args = { .in = { b->g->tokens }, .use = { graph_use(b->g, table, USE_INPUT) }, .n_uses = 1 };
    TRY(builder_op(b, &op_embedding, "embed_tokens", args, &x, NULL, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t head_block(struct builder *b, const struct llama_shape *s, int table, struct err *e) {
    builder_prefix(b, "%s", "");
    int x = builder_block(b, "head"), n;
    TRY(norm(b, s, "norm", x, -1, NULL, &n, e));
    b->root = "";
    if (!s->tied_embeddings)
        table = builder_table(b, "lm_head.weight", SHAPE(s->vocabulary, s->width), INIT_STD);
    struct op_arguments head = {
        .in = { n }, .use = { graph_use(b->g, table, USE_HEAD) }, .n_uses = 1, .attr.transposed = true
    };
    TRY(builder_op(b, &op_linear, "lm_head", head, &b->g->logits, NULL, e));
    struct op_arguments loss = { .in = { b->g->logits, b->g->targets } };
    TRY(builder_op(b, &op_cross_entropy, "loss", loss, &b->g->losses, NULL, e));
    graph_end_block(b->g, -1);
    return ST_OK;
}

static status_t check(const struct llama_shape *s, struct err *e) {
    if (s->layers < 1 || s->width < 1 || s->context < 1 || s->vocabulary < 1 || s->hidden < 1)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "model.llama: layers, width, hidden, context and vocabulary must be at least 1");
    if (s->heads < 1 || s->width % s->heads)
        return err_set(e, ST_INVALID_ARGUMENT, "model.llama.heads: %d does not divide width %d", s->heads, s->width);
    if (s->width / s->heads % 2)
        return err_set(e, ST_INVALID_ARGUMENT, "model.llama.heads: a head of %d numbers cannot be turned in pairs",
                       s->width / s->heads);
    if (s->kv_heads < 1 || s->heads % s->kv_heads)
        return err_set(e, ST_INVALID_ARGUMENT, "model.llama.kv_heads: %d does not divide heads %d", s->kv_heads,
                       s->heads);
    if (!(s->rope_theta >= 1) || !(s->norm_eps > 0))
        return err_set(e, ST_INVALID_ARGUMENT, "model.llama: rope_theta must be at least 1, norm_eps above 0");
    const struct llama_rope_scaling *r = &s->rope_scaling;
    if (r->factor != 0 && !(r->factor >= 1 && r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor &&
                            r->original_max_position_embeddings >= 1))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "model.llama.rope_scaling: factor must be at least 1, low_freq_factor above 0 and below "
                       "high_freq_factor, original_max_position_embeddings at least 1");
    return ST_OK;
}

static status_t build(const void *of, const struct model_data *data, struct graph *g, struct err *e) {
    const struct llama_shape *shape = of;
    (void)data;
    TRY(check(shape, e));
    struct builder b = { .g = g, .root = "model." };
    g->targets_per_sample = shape->context;
    g->tokens = graph_add_batch(g, "tokens", BATCH_TOKENS, DTYPE_I32, SHAPE(g->micro_batch, shape->context));
    g->targets = graph_add_batch(g, "targets", BATCH_TARGETS, DTYPE_I32, SHAPE(g->micro_batch, shape->context));
    int table = builder_table(&b, "embed_tokens.weight", SHAPE(shape->vocabulary, shape->width), INIT_STD);
    TRY(embedding_block(&b, table, e));
    for (int i = 0; i < shape->layers; i++)
        TRY(decoder_block(&b, shape, i, e));
    return head_block(&b, shape, table, e);
}

static const struct member MEMBERS[] = {
    MEMBER_INT(struct llama_shape, layers),
    MEMBER_INT(struct llama_shape, heads),
    MEMBER_INT(struct llama_shape, width),
    MEMBER_INT(struct llama_shape, context),
    MEMBER_INT(struct llama_shape, kv_heads),
    MEMBER_INT(struct llama_shape, hidden),
    MEMBER_INT(struct llama_shape, vocabulary),
    MEMBER_REAL(struct llama_shape, rope_theta),
    { .name = "rope_scaling.factor",
      .type = MEMBER_TYPE_REAL,
      .at = offsetof(struct llama_shape, rope_scaling.factor),
      .optional = true },
    { .name = "rope_scaling.low_freq_factor",
      .type = MEMBER_TYPE_REAL,
      .at = offsetof(struct llama_shape, rope_scaling.low_freq_factor),
      .optional = true },
    { .name = "rope_scaling.high_freq_factor",
      .type = MEMBER_TYPE_REAL,
      .at = offsetof(struct llama_shape, rope_scaling.high_freq_factor),
      .optional = true },
    { .name = "rope_scaling.original_max_position_embeddings",
      .type = MEMBER_TYPE_INT,
      .at = offsetof(struct llama_shape, rope_scaling.original_max_position_embeddings),
      .optional = true },
    MEMBER_REAL(struct llama_shape, norm_eps),
    MEMBER_BOOL(struct llama_shape, tied_embeddings),
};

const struct model_kind model_llama = { .name = "llama",
                                        .samples = MODEL_TOKENS,
                                        .members = MEMBERS,
                                        .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                        .build = build };
