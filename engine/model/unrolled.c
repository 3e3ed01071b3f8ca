#include "engine/model/builder.h"
#include "engine/model/model.h"

#include <math.h>
#include <stdio.h>

enum { KERNEL = 3, PART_NAME = 32 };

static const double INIT_ETA = 1;

struct inputs {
    int measured, mask, reference;
};

/* y = x * W + b, then max(., 0) except after the last layer. The last layer has small initial weights, so that training
 * begins with nearly the iterates of the plain method. */
static status_t layer(struct builder *b, const struct unrolled_shape *s, int i, int x, int *y, struct err *e) {
    const bool last = i == s->layers - 1;
    const int64_t in = b->g->tensors[x].shape.dim[3], out = last ? 1 : s->channels;
    const double std = sqrt(2.0 / (double)(in * KERNEL * KERNEL)) * (last ? 0.1 : 1);
    char name[PART_NAME], weight[PART_NAME + 8], bias[PART_NAME + 8];
    snprintf(name, sizeof name, "net.%d", i);
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    struct op_arguments args = { .in = { x }, .n_uses = 2, .attr = { .stride = 1, .padding = KERNEL / 2 } };
    args.use[0] = builder_matrix_use(b, weight, SHAPE(out, in, KERNEL, KERNEL), std);
    args.use[1] = builder_vector_use(b, bias, out, INIT_ZERO);
    return builder_op(b, last ? &op_convolution : &op_convolution_relu, name, args, y, NULL, e);
}

/* x_0 = Re F* M y. This block has no parameters. */
static status_t first_block(struct builder *b, const struct inputs *in, struct err *e) {
    int x;
    builder_block(b, "adjoint");
    TRY(builder_op(b, &op_fourier_adjoint, "adjoint", (struct op_arguments){ .in = { in->measured, in->mask } }, &x,
                   NULL, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t iteration_block(struct builder *b, const struct unrolled_shape *s, const struct inputs *in, int number,
                                struct err *e) {
    if (s->shared_weights)
        builder_prefix(b, "update.");
    else
        builder_prefix(b, "updates.%d.", number);
    int x = builder_block(b, "iteration.%d", number), update = x;
    for (int i = 0; i < s->layers; i++)
        TRY(layer(b, s, i, update, &update, e));
    struct op_arguments step = { .in = { x, update, in->measured, in->mask }, .n_uses = 1 };
    step.use[0] = graph_use(b->g, builder_constant(b, "eta", INIT_ETA), 0);
    TRY(builder_op(b, &op_fourier_step, "step", step, &x, NULL, e));
    graph_end_block(b->g, x);
    return ST_OK;
}

static status_t report(struct builder *b, const char *name, int x, const struct inputs *in, struct err *e) {
    int tensor;
    TRY(builder_op(b, &op_psnr, name, (struct op_arguments){ .in = { x, in->reference } }, &tensor, NULL, e));
    graph_add_report(b->g, name, tensor);
    return ST_OK;
}

/* The first iterate is computed again for its report, so that the blocks need not pass it on. */
static status_t loss_block(struct builder *b, const struct inputs *in, struct err *e) {
    builder_prefix(b, "%s", "");
    int x = builder_block(b, "loss"), first;
    TRY(builder_op(b, &op_fourier_adjoint, "first", (struct op_arguments){ .in = { in->measured, in->mask } }, &first,
                   NULL, e));
    TRY(report(b, "psnr_first", first, in, e));
    TRY(report(b, "psnr", x, in, e));
    TRY(builder_op(b, &op_squared_error, "loss", (struct op_arguments){ .in = { x, in->reference } }, &b->g->losses,
                   NULL, e));
    graph_end_block(b->g, -1);
    return ST_OK;
}

static status_t check(const struct unrolled_shape *s, int height, int width, struct err *e) {
    if (s->iterations < 1 || s->channels < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "model.unrolled: iterations and channels must be at least 1");
    if (s->layers < 2)
        return err_set(e, ST_INVALID_ARGUMENT, "model.unrolled.layers: %d is not at least 2", s->layers);
    if (height < 1 || width < 1 || height & (height - 1) || width & (width - 1))
        return err_set(e, ST_INVALID_ARGUMENT, "model.unrolled: sides of %d x %d pixels are not powers of two", height,
                       width);
    return ST_OK;
}

static status_t build(const void *of, const struct model_data *data, struct graph *g, struct err *e) {
    const struct unrolled_shape *shape = of;
    TRY(check(shape, data->height, data->width, e));
    struct builder b = { .g = g, .root = "" };
    g->targets_per_sample = 1;
    const struct inputs in = { .measured = graph_add_batch(g, "measurements", BATCH_MEASUREMENTS, DTYPE_F32,
                                                           SHAPE(g->micro_batch, 2, data->height, data->width)),
                               .mask = graph_add_batch(g, "mask", BATCH_MASK, DTYPE_F32,
                                                       SHAPE(g->micro_batch, 1, data->height, data->width)),
                               .reference = graph_add_batch(g, "reference", BATCH_REFERENCE, DTYPE_F32,
                                                            SHAPE(g->micro_batch, 1, data->height, data->width)) };
    TRY(first_block(&b, &in, e));
    for (int i = 0; i < shape->iterations; i++)
        TRY(iteration_block(&b, shape, &in, i, e));
    return loss_block(&b, &in, e);
}

static const struct member MEMBERS[] = {
    MEMBER_INT(struct unrolled_shape, iterations),
    MEMBER_INT(struct unrolled_shape, channels),
    MEMBER_INT(struct unrolled_shape, layers),
    MEMBER_BOOL(struct unrolled_shape, shared_weights),
};

const struct model_kind model_unrolled = { .name = "unrolled",
                                           .samples = MODEL_MEASUREMENTS,
                                           .members = MEMBERS,
                                           .n_members = sizeof MEMBERS / sizeof *MEMBERS,
                                           .build = build };
