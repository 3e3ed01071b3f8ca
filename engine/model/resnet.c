/* A residual network: a stem, four stages of residual blocks, and a head.
 *
 * The stem converts images to channels-last order. A 7x7 convolution with stride 2 and a max pooling follow, or, for
 * small images, one 3x3 convolution. `struct plan_of_block` lists the kernel sizes of a basic block or a bottleneck and
 * the convolution that has the stride. Stage i has width * 2^i inner channels; a bottleneck has four times as many
 * output channels. The first block of each later stage halves height and width. Each convolution is followed by a batch
 * norm; the last norm of a block also adds the block's input and applies ReLU. If the shape changes, the input first
 * passes a 1x1 convolution and a norm (`downsample`). The head averages over pixels and classifies. */
#include "engine/model/builder.h"
#include "engine/model/model.h"

#include <math.h>
#include <stdio.h>

enum { STAGES = 4, PART_NAME = 32 };

static const double EPSILON = 1e-5, MOMENTUM = 0.1;

/* y = x * W; NAME.weight. */
static status_t convolution(struct builder *b, const char *name, int x, int64_t out, int kernel, int stride, int *y,
                            struct err *e) {
    char weight[PART_NAME];
    snprintf(weight, sizeof weight, "%s.weight", name);
    const struct shape w = SHAPE(out, b->g->tensors[x].shape.dim[3], kernel, kernel);
    struct op_arguments args = { .in = { x },
                                 .use = { builder_matrix_use(b, weight, w,
                                                             sqrt(2.0 / (double)(out * kernel * kernel))) },
                                 .n_uses = 1,
                                 .attr = { .stride = stride, .padding = kernel / 2 } };
    return builder_op(b, &op_convolution, name, args, y, NULL, e);
}

/* y = norm(x) (+ residual), then max(., 0) if relu; NAME.weight, .bias, .running_mean, .running_var. */
static status_t norm(struct builder *b, const char *name, int x, int residual, bool relu, int *y, struct err *e) {
    static const char *const part[] = { "weight", "bias", "running_mean", "running_var" };
    struct op_arguments args = { .in = { x, residual }, .n_uses = 4, .attr = { .epsilon = EPSILON, .relu = relu } };
    for (int i = 0; i < 4; i++) {
        char full[PART_NAME];
        snprintf(full, sizeof full, "%s.%s", name, part[i]);
        const int64_t width = b->g->tensors[x].shape.dim[3];
        int p = i < 2 ? builder_vector(b, full, width, i == 0 ? INIT_ONE : INIT_ZERO)
                      : builder_statistic(b, full, width, i == 3 ? INIT_ONE : INIT_ZERO, MOMENTUM);
        args.use[i] = graph_use(b->g, p, 0);
    }
    return builder_op(b, residual < 0 ? &op_batchnorm : &op_batchnorm_residual, name, args, y, NULL, e);
}

/* Convolutions of a block: kernel sizes, and which one has the stride. */
struct plan_of_block {
    int n, kernel[3], strided;
};
static const struct plan_of_block BASIC = { 2, { 3, 3 }, 0 }, BOTTLENECK = { 3, { 1, 3, 1 }, 1 };

struct stage {
    const struct plan_of_block *plan;
    int64_t inner, out; /* channels */
    int stride;         /* of its first block */
};

static status_t residual_block(struct builder *b, const struct stage *s, int stage, int number, struct err *e) {
    builder_prefix(b, "layer%d.%d.", stage + 1, number);
    int x = builder_block(b, "layer%d.%d", stage + 1, number), y = x;
    const int stride = number == 0 ? s->stride : 1, last = s->plan->n - 1;
    char name[PART_NAME];
    for (int i = 0; i <= last; i++) {
        snprintf(name, sizeof name, "conv%d", i + 1);
        TRY(convolution(b, name, y, i == last ? s->out : s->inner, s->plan->kernel[i],
                        i == s->plan->strided ? stride : 1, &y, e));
        snprintf(name, sizeof name, "bn%d", i + 1);
        if (i < last)
            TRY(norm(b, name, y, -1, true, &y, e));
    }
    if (stride > 1 || b->g->tensors[x].shape.dim[3] != s->out) {
        TRY(convolution(b, "downsample.0", x, s->out, 1, stride, &x, e));
        TRY(norm(b, "downsample.1", x, -1, false, &x, e));
    }
    TRY(norm(b, name, y, x, true, &y, e));
    graph_end_block(b->g, y);
    return ST_OK;
}

static status_t stem_block(struct builder *b, const struct resnet_shape *s, int images, struct err *e) {
    const bool large = s->stem == RESNET_STEM_IMAGENET;
    int x;
    builder_block(b, "stem");
    TRY(builder_op(b, &op_channels_last, "channels_last", (struct op_arguments){ .in = { images } }, &x, NULL, e));
    TRY(convolution(b, "conv1", x, s->width, large ? 7 : 3, large ? 2 : 1, &x, e));
    TRY(norm(b, "bn1", x, -1, true, &x, e));
    struct op_arguments pool = { .in = { x }, .attr = { .kernel = 3, .stride = 2, .padding = 1 } };
    if (large)
        TRY(builder_op(b, &op_max_pool, "maxpool", pool, &x, NULL, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t head_block(struct builder *b, const struct resnet_shape *s, const struct builder_labels *labels,
                           struct err *e) {
    builder_prefix(b, "%s", "");
    int x = builder_block(b, "head"), y;
    TRY(builder_op(b, &op_average_pool, "avgpool", (struct op_arguments){ .in = { x } }, &y, NULL, e));
    struct linear_layer fc = { .name = "fc",
                               .out = s->classes,
                               .std = 1 / sqrt(3.0 * (double)b->g->tensors[y].shape.dim[1]),
                               .bias = true,
                               .uniform = true,
                               .transposed = true };
    TRY(builder_linear(b, &fc, y, &y, e));
    return builder_classify(b, y, labels, e);
}

static status_t check(const struct resnet_shape *s, struct err *e) {
    if (s->layers != 18 && s->layers != 34 && s->layers != 50)
        return err_set(e, ST_INVALID_ARGUMENT, "model.resnet.layers: %d is none of 18, 34 and 50", s->layers);
    if (s->width < 1 || s->classes < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "model.resnet: width and classes must be at least 1");
    return ST_OK;
}

static status_t build(const void *of, const struct model_data *data, struct graph *g, struct err *e) {
    const struct resnet_shape *shape = of;
    static const int SMALL[STAGES] = { 2, 2, 2, 2 }, LARGE[STAGES] = { 3, 4, 6, 3 };
    TRY(check(shape, e));
    struct builder b = { .g = g, .root = "" };
    g->targets_per_sample = 1;
    int images = graph_add_batch(g, "images", BATCH_IMAGES, g->element,
                                 SHAPE(g->micro_batch, data->channels, data->height, data->width));
    const struct builder_labels labels = builder_add_labels(&b, data);
    TRY(stem_block(&b, shape, images, e));
    for (int i = 0; i < STAGES; i++) {
        const int64_t inner = (int64_t)shape->width << i;
        const bool bottleneck = shape->layers == 50;
        const struct stage s = { .plan = bottleneck ? &BOTTLENECK : &BASIC,
                                 .inner = inner,
                                 .out = bottleneck ? 4 * inner : inner,
                                 .stride = i ? 2 : 1 };
        for (int n = 0; n < (shape->layers == 18 ? SMALL : LARGE)[i]; n++)
            TRY(residual_block(&b, &s, i, n, e));
    }
    return head_block(&b, shape, &labels, e);
}

static const char *const STEMS[] = {
    [RESNET_STEM_AUTO] = "", [RESNET_STEM_IMAGENET] = "imagenet", [RESNET_STEM_SMALL] = "small", NULL
};

static void resolve(void *of, const struct model_data *data) {
    struct resnet_shape *s = of;
    if (s->stem == RESNET_STEM_AUTO)
        s->stem = data->height <= 64 && data->width <= 64 ? RESNET_STEM_SMALL : RESNET_STEM_IMAGENET;
}

static const struct member MEMBERS[] = {
    MEMBER_INT(struct resnet_shape, layers),
    MEMBER_INT(struct resnet_shape, classes),
    MEMBER_CHOICE(struct resnet_shape, stem, STEMS),
    MEMBER_INT(struct resnet_shape, width),
};

const struct model_kind model_resnet = { .name = "resnet",
                                         .samples = MODEL_LABELLED_IMAGES,
                                         .members = MEMBERS,
                                         .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                         .resolve = resolve,
                                         .build = build };
