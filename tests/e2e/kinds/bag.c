/* A model that test_new_kinds.py adds to a copy of the tree: each token's embedding goes through `layers` linear layers
 * with GELU, and a head predicts the next token. It knows nothing of the tokens before. */
#include "engine/model/builder.h"
#include "engine/model/model.h"

struct bag_shape {
    int layers, width, context, vocabulary;
};
_Static_assert(sizeof(struct bag_shape) <= sizeof(((struct model_config *)0)->shape),
               "struct model_config has its bytes");

static const double INIT_STD = 0.02;

static status_t embedding_block(struct builder *b, const struct bag_shape *s, struct err *e) {
    int x;
    builder_block(b, "embedding");
    struct op_arguments args = { .in = { b->g->tokens }, .n_uses = 1 };
    args.use[0] = graph_use(b->g, builder_table(b, "embedding.weight", SHAPE(s->vocabulary, s->width), INIT_STD), 0);
    TRY(builder_op(b, &op_embedding, "embedding", args, &x, NULL, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t layer_block(struct builder *b, const struct bag_shape *s, int layer, struct err *e) {
    builder_prefix(b, "layers.%d.", layer);
    int x = builder_block(b, "layers.%d", layer);
    struct linear_layer l = { .name = "linear", .out = s->width, .std = INIT_STD, .bias = true, .gelu = true };
    TRY(builder_linear(b, &l, x, &x, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t head_block(struct builder *b, const struct bag_shape *s, struct err *e) {
    builder_prefix(b, "%s", "");
    int x = builder_block(b, "head");
    struct linear_layer head = { .name = "head", .out = s->vocabulary, .std = INIT_STD, .transposed = true };
    TRY(builder_linear(b, &head, x, &b->g->logits, e));
    struct op_arguments loss = { .in = { b->g->logits, b->g->targets } };
    TRY(builder_op(b, &op_cross_entropy, "loss", loss, &b->g->losses, NULL, e));
    graph_end_block(b->g, -1);
    return ST_OK;
}

static status_t build(const void *of, const struct model_data *data, struct graph *g, struct err *e) {
    const struct bag_shape *s = of;
    struct builder b = { .g = g, .root = "" };
    (void)data;
    g->targets_per_sample = s->context;
    g->tokens = graph_add_batch(g, "tokens", BATCH_TOKENS, DTYPE_I32, SHAPE(g->micro_batch, s->context));
    g->targets = graph_add_batch(g, "targets", BATCH_TARGETS, DTYPE_I32, SHAPE(g->micro_batch, s->context));
    TRY(embedding_block(&b, s, e));
    for (int i = 0; i < s->layers; i++)
        TRY(layer_block(&b, s, i, e));
    return head_block(&b, s, e);
}

static const struct member MEMBERS[] = {
    MEMBER_INT(struct bag_shape, layers),
    MEMBER_INT(struct bag_shape, width),
    MEMBER_INT(struct bag_shape, context),
    MEMBER_INT(struct bag_shape, vocabulary),
};

const struct model_kind model_bag = { .name = "bag",
                                      .samples = MODEL_TOKENS,
                                      .members = MEMBERS,
                                      .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                      .build = build };
