/* Initial values are those of timm's VisionTransformer with weight_init '' (init_weights_vit_timm): linear layers, the
 * head and the positions are normal with deviation 0.02 (timm cuts the distribution off at 2, a hundred deviations),
 * the class token is normal with deviation 1e-6, biases are zero. The projection of patches keeps PyTorch's default of
 * a convolution: weight and bias uniform between -1 / sqrt(inputs) and 1 / sqrt(inputs). As timm's no_weight_decay
 * says, class token and positions are not decayed. GELU is by erf. */
#include "engine/model/builder.h"
#include "engine/model/model.h"

#include <math.h>

static const double INIT_STD = 0.02, TOKEN_STD = 1e-6, LAYERNORM_EPSILON = 1e-6;

static status_t linear(struct builder *b, const char *name, int x, int64_t out, bool gelu, int *y, struct err *e) {
    struct linear_layer l = {
        .name = name, .out = out, .std = INIT_STD, .bias = true, .gelu_erf = gelu, .transposed = true
    };
    return builder_linear(b, &l, x, y, e);
}

static status_t norm(struct builder *b, const char *name, int x, int branch, int *r, int *y, struct err *e) {
    return builder_layernorm(b, name, LAYERNORM_EPSILON, x, branch, r, y, e);
}

/* Patches as vectors: a convolution whose stride is its kernel is a linear layer on the patches. */
static status_t projection(struct builder *b, const struct vit_shape *s, int64_t channels, int *x, struct err *e) {
    const double std = sqrt(1.0 / (3.0 * (double)(channels * s->patch * s->patch)));
    struct op_arguments project = { .in = { *x }, .n_uses = 2, .attr.transposed = true };
    project.use[0] = builder_matrix_use(b, "conv_proj.weight", SHAPE(s->width, channels, s->patch, s->patch), std);
    project.use[1] = builder_vector_use(b, "conv_proj.bias", s->width, INIT_UNIFORM);
    b->g->parameters[b->g->uses[project.use[0]].parameter].init = INIT_UNIFORM;
    b->g->parameters[b->g->uses[project.use[1]].parameter].init_std = std;
    return builder_op(b, &op_linear, "conv_proj", project, x, NULL, e);
}

static status_t embedding_block(struct builder *b, const struct vit_shape *s, int images, struct err *e) {
    const struct shape *image = &b->g->tensors[images].shape;
    const int64_t channels = image->dim[1], tokens = 1 + image->dim[2] / s->patch * (image->dim[3] / s->patch);
    int x;
    builder_block(b, "embedding");
    struct op_arguments cut = { .in = { images }, .attr.kernel = s->patch };
    TRY(builder_op(b, &op_patches, "patches", cut, &x, NULL, e));
    TRY(projection(b, s, channels, &x, e));
    struct op_arguments args = { .in = { x }, .n_uses = 2 };
    args.use[0] = graph_use(b->g, builder_undecayed(b, "class_token", SHAPE(1, 1, s->width), TOKEN_STD), 0);
    args.use[1] = graph_use(b->g, builder_undecayed(b, "encoder.pos_embedding", SHAPE(1, tokens, s->width), INIT_STD),
                            0);
    TRY(builder_op(b, &op_class_token, "class_token", args, &x, NULL, e));
    TRY(builder_dropout(b, "encoder.dropout", s->dropout, &x, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t attention(struct builder *b, const struct vit_shape *s, int x, int *y, struct err *e) {
    int qkv;
    struct op_arguments project = { .in = { x }, .n_uses = 2, .attr.transposed = true };
    project.use[0] = builder_matrix_use(b, "self_attention.in_proj_weight", SHAPE(3 * s->width, s->width), INIT_STD);
    b->g->parameters[b->g->uses[project.use[0]].parameter].packed = 3; /* q, k, v */
    project.use[1] = builder_vector_use(b, "self_attention.in_proj_bias", 3 * s->width, INIT_ZERO);
    TRY(builder_op(b, &op_linear, "self_attention.in_proj", project, &qkv, NULL, e));
    struct op_arguments attend = { .in = { qkv }, .attr = { .heads = s->heads, .dropout = s->dropout } };
    TRY(builder_op(b, &op_attention, "self_attention", attend, y, NULL, e));
    return linear(b, "self_attention.out_proj", *y, s->width, false, y, e);
}

static status_t encoder_block(struct builder *b, const struct vit_shape *s, int layer, struct err *e) {
    builder_prefix(b, "encoder.layers.encoder_layer_%d.", layer);
    int x = builder_block(b, "encoder_layer_%d", layer), n, a, f, r = -1;
    TRY(norm(b, "ln_1", x, -1, NULL, &n, e));
    TRY(attention(b, s, n, &a, e));
    TRY(builder_dropout(b, "dropout", s->dropout, &a, e));
    TRY(norm(b, "ln_2", x, a, &r, &n, e));
    TRY(linear(b, "mlp.0", n, s->hidden, true, &f, e));
    TRY(builder_dropout(b, "mlp.2", s->dropout, &f, e));
    TRY(linear(b, "mlp.3", f, s->width, false, &f, e));
    TRY(builder_dropout(b, "mlp.4", s->dropout, &f, e));
    TRY(builder_add(b, "residual", r, f, &x, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t head_block(struct builder *b, const struct vit_shape *s, const struct builder_labels *labels,
                           struct err *e) {
    builder_prefix(b, "%s", "");
    int x = builder_block(b, "head"), n;
    TRY(norm(b, "encoder.ln", x, -1, NULL, &n, e));
    TRY(builder_op(b, &op_first_token, "class_token.out", (struct op_arguments){ .in = { n } }, &n, NULL, e));
    struct linear_layer head = {
        .name = "heads.head", .out = s->classes, .std = INIT_STD, .bias = true, .transposed = true
    };
    TRY(builder_linear(b, &head, n, &n, e));
    return builder_classify(b, n, labels, e);
}

static status_t check(const struct vit_shape *s, int height, int width, struct err *e) {
    if (s->layers < 1 || s->width < 1 || s->hidden < 1 || s->classes < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "model.vit: layers, width, hidden and classes must be at least 1");
    if (s->heads < 1 || s->width % s->heads)
        return err_set(e, ST_INVALID_ARGUMENT, "model.vit.heads: %d does not divide width %d", s->heads, s->width);
    if (s->patch < 1 || height % s->patch || width % s->patch)
        return err_set(e, ST_INVALID_ARGUMENT, "model.vit.patch: %d does not divide images of %d x %d", s->patch,
                       height, width);
    if (!(s->dropout >= 0 && s->dropout < 1))
        return err_set(e, ST_INVALID_ARGUMENT, "model.vit.dropout: %g is not at least 0 and below 1", s->dropout);
    return ST_OK;
}

static status_t build(const void *of, const struct model_data *data, struct graph *g, struct err *e) {
    const struct vit_shape *shape = of;
    TRY(check(shape, data->height, data->width, e));
    struct builder b = { .g = g, .root = "" };
    g->targets_per_sample = 1;
    int images = graph_add_batch(g, "images", BATCH_IMAGES, g->element,
                                 SHAPE(g->micro_batch, data->channels, data->height, data->width));
    const struct builder_labels labels = builder_add_labels(&b, data);
    TRY(embedding_block(&b, shape, images, e));
    for (int i = 0; i < shape->layers; i++)
        TRY(encoder_block(&b, shape, i, e));
    return head_block(&b, shape, &labels, e);
}

static const struct member MEMBERS[] = {
    MEMBER_INT(struct vit_shape, layers),   MEMBER_INT(struct vit_shape, heads),  MEMBER_INT(struct vit_shape, width),
    MEMBER_INT(struct vit_shape, patch),    MEMBER_INT(struct vit_shape, hidden), MEMBER_INT(struct vit_shape, classes),
    MEMBER_REAL(struct vit_shape, dropout),
};

const struct model_kind model_vit = { .name = "vit",
                                      .samples = MODEL_LABELLED_IMAGES,
                                      .members = MEMBERS,
                                      .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                      .build = build };
