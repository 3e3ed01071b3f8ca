#include "engine/model/builder.h"
#include "engine/model/model.h"

#include <math.h>
#include <stdio.h>

/* Applies layer i to x: linear, then GELU and dropout except after the last layer. The standard deviation is that of He
 * et al. 2015, arXiv 1502.01852. */
static status_t layer(struct builder *b, const struct mlp_shape *s, int i, int x, int *y, struct err *e) {
    const bool last = i == s->n_hidden;
    char name[16];
    snprintf(name, sizeof name, "layers.%d", i);
    struct linear_layer l = { .name = name,
                              .out = last ? s->classes : s->hidden[i],
                              .std = sqrt(2.0 / (double)shape_elements_from(&b->g->tensors[x].shape, 1)),
                              .bias = true,
                              .gelu = !last,
                              .transposed = true };
    TRY(builder_linear(b, &l, x, y, e));
    return last ? ST_OK : builder_dropout(b, "drop", s->dropout, y, e);
}

static status_t check(const struct mlp_shape *s, struct err *e) {
    if (s->n_hidden < 0 || s->n_hidden > MLP_LAYERS_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "model.mlp.hidden: %d layers are more than %d", s->n_hidden,
                       MLP_LAYERS_MAX);
    for (int i = 0; i < s->n_hidden; i++)
        if (s->hidden[i] < 1)
            return err_set(e, ST_INVALID_ARGUMENT, "model.mlp.hidden: %d is less than 1", s->hidden[i]);
    if (!(s->dropout >= 0 && s->dropout < 1))
        return err_set(e, ST_INVALID_ARGUMENT, "model.mlp.dropout: %g is not at least 0 and below 1", s->dropout);
    return ST_OK;
}

static status_t build(const void *of, const struct model_data *data, struct graph *g, struct err *e) {
    const struct mlp_shape *shape = of;
    TRY(check(shape, e));
    struct builder b = { .g = g, .root = "" };
    g->targets_per_sample = 1;
    int x = graph_add_batch(g, "images", BATCH_IMAGES, g->element,
                            SHAPE(g->micro_batch, data->channels, data->height, data->width));
    const struct builder_labels labels = builder_add_labels(&b, data);
    for (int i = 0; i < shape->n_hidden; i++) {
        builder_block(&b, "layers.%d", i);
        TRY(layer(&b, shape, i, x, &x, e));
        graph_end_block(g, x);
    }
    builder_block(&b, "head");
    TRY(layer(&b, shape, shape->n_hidden, x, &x, e));
    return builder_classify(&b, x, &labels, e);
}

static const struct member MEMBERS[] = {
    { .name = "hidden",
      .type = MEMBER_TYPE_LIST,
      .at = offsetof(struct mlp_shape, hidden),
      .count_at = offsetof(struct mlp_shape, n_hidden),
      .max = MLP_LAYERS_MAX },
    MEMBER_INT(struct mlp_shape, classes),
    MEMBER_REAL(struct mlp_shape, dropout),
};

const struct model_kind model_mlp = { .name = "mlp",
                                      .samples = MODEL_LABELLED_IMAGES,
                                      .members = MEMBERS,
                                      .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                      .build = build };
