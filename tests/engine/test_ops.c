/* Every op's backward pass against central finite differences of its forward pass, for inputs and parameters, through
 * the graph, its autodiff and the kernels. An op of this test makes the inputs by copying a parameter to its output.
 * The loss is the squared error of the op's output, or the op itself if it is a loss. */
#include "tests/engine/walk.h"

#include <stdio.h>

enum { B = 3 };

/* --- an op that gives out its parameter ---*/

static status_t source_shape(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    graph_add_output(g, op, 0, "", g->parameters[g->uses[op->use[0]].parameter].shape, -1);
    return ST_OK;
}

static int64_t elements(const struct op_call *c) { return shape_elements(&c->graph->tensors[c->op->out[0]].shape); }

static status_t source_forward(const struct op_call *c, struct err *e) {
    return c->kernels->copy(c->kernels, c->out[0], c->param[0], elements(c), e);
}

static status_t source_backward(const struct op_call *c, struct err *e) {
    return c->kernels->convert_to_fp32(c->kernels, c->d_param[0], c->d_out[0], elements(c), e);
}

static const struct op_kind SOURCE = {
    .name = "source",
    .n_uses_min = 1,
    .shape = source_shape,
    .forward = source_forward,
    .backward_input = source_backward,
};

/* --- building ---*/

static int parameter(struct graph *g, struct shape shape, enum init around) {
    struct parameter p = { .shape = shape, .init = around };
    snprintf(p.name, sizeof p.name, "p%d", g->n_parameters);
    return graph_use(g, graph_add_parameter(g, &p), 0);
}

static int add(struct graph *g, const struct op_kind *kind, struct op_arguments args, int out[OP_OUTPUTS]) {
    struct err e;
    int outputs[OP_OUTPUTS];
    args.name = kind->name;
    args.n_in = (int)kind->n_in;
    if (graph_add_op(g, kind, &args, out ? out : outputs, &e) != ST_OK)
        fail_msg("%s: %s", kind->name, e.msg);
    return out ? out[0] : outputs[0];
}

static int source(struct graph *g, struct shape shape) {
    const int use = parameter(g, shape, INIT_ZERO);
    return add(g, &SOURCE, (struct op_arguments){ .use = { use }, .n_uses = 1 }, NULL);
}

/* Each makes the ops of one case and gives the tensor whose squared error is the loss; -1: the case has its own. */
typedef int make_fn(struct graph *g);

static int make_add(struct graph *g) {
    const int a = source(g, SHAPE(B, 4, 5)), b = source(g, SHAPE(B, 4, 5));
    return add(g, &op_add, (struct op_arguments){ .in = { a, b } }, NULL);
}

static int make_dropout(struct graph *g) {
    return add(g, &op_dropout, (struct op_arguments){ .in = { source(g, SHAPE(B, 4, 5)) }, .attr.dropout = 0.3 }, NULL);
}

static int make_embedding(struct graph *g) {
    g->tokens = graph_add_batch(g, "tokens", BATCH_TOKENS, DTYPE_I32, SHAPE(B, 4));
    struct op_arguments args = { .in = { g->tokens }, .n_uses = 2 };
    args.use[0] = parameter(g, SHAPE(7, 5), INIT_ZERO);
    args.use[1] = parameter(g, SHAPE(6, 5), INIT_ZERO);
    return add(g, &op_embedding, args, NULL);
}

static int make_embedding_without_positions(struct graph *g) {
    g->tokens = graph_add_batch(g, "tokens", BATCH_TOKENS, DTYPE_I32, SHAPE(B, 4));
    const int table = parameter(g, SHAPE(7, 5), INIT_ZERO);
    return add(g, &op_embedding, (struct op_arguments){ .in = { g->tokens }, .use = { table }, .n_uses = 1 }, NULL);
}

static int linear_of(struct graph *g, const struct op_kind *kind, bool transposed) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 4, 5)) }, .n_uses = 2, .attr.transposed = transposed };
    args.use[0] = parameter(g, transposed ? SHAPE(6, 5) : SHAPE(5, 6), INIT_ZERO);
    args.use[1] = parameter(g, SHAPE(6), INIT_ZERO);
    return add(g, kind, args, NULL);
}
static int make_linear(struct graph *g) { return linear_of(g, &op_linear, false); }
static int make_linear_transposed(struct graph *g) { return linear_of(g, &op_linear, true); }
static int make_linear_gelu(struct graph *g) { return linear_of(g, &op_linear_gelu, true); }

static int make_linear_gelu_erf(struct graph *g) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 4, 5)) },
                                 .n_uses = 2,
                                 .attr = { .transposed = true, .gelu_erf = true } };
    args.use[0] = parameter(g, SHAPE(6, 5), INIT_ZERO);
    args.use[1] = parameter(g, SHAPE(6), INIT_ZERO);
    return add(g, &op_linear_gelu, args, NULL);
}

/* A whole image as one vector. */
static int make_linear_of_images(struct graph *g) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 2, 3, 4)) }, .n_uses = 1, .attr.transposed = true };
    args.use[0] = parameter(g, SHAPE(6, 24), INIT_ZERO);
    return add(g, &op_linear, args, NULL);
}

static int make_linear_packed(struct graph *g) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 4, 5)) }, .n_uses = 3, .attr.transposed = true };
    for (int i = 0; i < 3; i++)
        args.use[i] = parameter(g, SHAPE(2 + i, 5), INIT_ZERO);
    return add(g, &op_linear_packed, args, NULL);
}

/* More weights than any model has in one op. */
static int make_linear_packed_of_all(struct graph *g) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 2, 3)) },
                                 .n_uses = OP_PARAMETERS,
                                 .attr.transposed = true };
    for (int i = 0; i < OP_PARAMETERS; i++)
        args.use[i] = parameter(g, SHAPE(1 + i % 2, 3), INIT_ZERO);
    return add(g, &op_linear_packed, args, NULL);
}

/* Three ops read one tensor, and none of them can add to a gradient. */
static int make_branches(struct graph *g) {
    const int x = source(g, SHAPE(B, 4, 10));
    int y[3];
    for (int i = 0; i < 3; i++) {
        const int branch = add(g, &op_branch, (struct op_arguments){ .in = { x } }, NULL);
        y[i] = add(g, i ? &op_swiglu : &op_first_token, (struct op_arguments){ .in = { branch } }, NULL);
    }
    const int sum = add(g, &op_add, (struct op_arguments){ .in = { y[1], y[2] } }, NULL);
    struct op_arguments narrow = { .in = { y[0] }, .n_uses = 1, .attr.transposed = true };
    narrow.use[0] = parameter(g, SHAPE(5, 10), INIT_ZERO);
    const int first = add(g, &op_first_token, (struct op_arguments){ .in = { sum } }, NULL);
    return add(g, &op_add, (struct op_arguments){ .in = { first, add(g, &op_linear, narrow, NULL) } }, NULL);
}

static int norm_of(struct graph *g, const struct op_kind *kind, int n_uses) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 4, 5)) }, .n_uses = n_uses, .attr.epsilon = 1e-3 };
    const bool residual = kind->n_in == 2;
    int out[OP_OUTPUTS];
    if (residual)
        args.in[1] = source(g, SHAPE(B, 4, 5));
    args.use[0] = parameter(g, SHAPE(5), INIT_ONE);
    if (n_uses > 1)
        args.use[1] = parameter(g, SHAPE(5), INIT_ZERO);
    const int y = add(g, kind, args, out);
    /* Both outputs are read, as in a transformer. */
    return residual ? add(g, &op_add, (struct op_arguments){ .in = { out[0], out[1] } }, NULL) : y;
}
static int make_layernorm(struct graph *g) { return norm_of(g, &op_layernorm, 2); }
static int make_residual_layernorm(struct graph *g) { return norm_of(g, &op_residual_layernorm, 2); }
static int make_rmsnorm(struct graph *g) { return norm_of(g, &op_rmsnorm, 1); }
static int make_residual_rmsnorm(struct graph *g) { return norm_of(g, &op_residual_rmsnorm, 1); }

static int attention_of(struct graph *g, struct op_attributes attr, bool turned) {
    const int kv = attr.kv_heads ? attr.kv_heads : attr.heads;
    int qkv = source(g, SHAPE(B, 5, (attr.heads + 2 * kv) * 4));
    if (turned)
        qkv = add(g, &op_rope, (struct op_arguments){ .in = { qkv }, .attr = attr }, NULL);
    return add(g, &op_attention, (struct op_arguments){ .in = { qkv }, .attr = attr }, NULL);
}
static int make_attention(struct graph *g) {
    return attention_of(g, (struct op_attributes){ .heads = 2, .causal = true, .dropout = 0.2 }, false);
}
static int make_full_attention(struct graph *g) { return attention_of(g, (struct op_attributes){ .heads = 2 }, false); }
static int make_grouped_turned_attention(struct graph *g) {
    return attention_of(
        g, (struct op_attributes){ .heads = 4, .kv_heads = 2, .causal = true, .rope = { .theta = 100 } }, true);
}

static int make_swiglu(struct graph *g) {
    return add(g, &op_swiglu, (struct op_arguments){ .in = { source(g, SHAPE(B, 4, 10)) } }, NULL);
}

static int convolution_of(struct graph *g, const struct op_kind *kind, int kernel, int stride) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 6, 5, 3)) },
                                 .n_uses = 2,
                                 .attr = { .stride = stride, .padding = kernel / 2 } };
    args.use[0] = parameter(g, SHAPE(4, 3, kernel, kernel), INIT_ZERO);
    args.use[1] = parameter(g, SHAPE(4), INIT_ZERO);
    return add(g, kind, args, NULL);
}
static int make_convolution(struct graph *g) { return convolution_of(g, &op_convolution, 3, 1); }
static int make_convolution_with_stride(struct graph *g) { return convolution_of(g, &op_convolution, 3, 2); }
static int make_convolution_of_pixels(struct graph *g) { return convolution_of(g, &op_convolution, 1, 2); }
static int make_convolution_relu(struct graph *g) { return convolution_of(g, &op_convolution_relu, 3, 1); }

/* An input that two convolutions read: the second one's gradient is added. */
static int make_convolutions_of_one(struct graph *g) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 4, 5, 3)) }, .n_uses = 1, .attr = { .stride = 1 } };
    int y[2];
    for (int i = 0; i < 2; i++) {
        args.use[0] = parameter(g, SHAPE(4, 3, 1, 1), INIT_ZERO);
        y[i] = add(g, &op_convolution, args, NULL);
    }
    return add(g, &op_add, (struct op_arguments){ .in = { y[0], y[1] } }, NULL);
}

/* One weight in two ops: the second reverse op adds to the gradient that the first wrote. */
static int make_shared_weights(struct graph *g) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 4, 5, 3)) }, .n_uses = 1, .attr = { .stride = 1 } };
    args.use[0] = parameter(g, SHAPE(3, 3, 1, 1), INIT_ZERO);
    args.in[0] = add(g, &op_convolution, args, NULL);
    return add(g, &op_convolution, args, NULL);
}

static int batchnorm_of(struct graph *g, const struct op_kind *kind, bool relu) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 3, 2, 4)) },
                                 .n_uses = 4,
                                 .attr = { .epsilon = 1e-3, .relu = relu } };
    if (kind->n_in == 2)
        args.in[1] = source(g, SHAPE(B, 3, 2, 4));
    args.use[0] = parameter(g, SHAPE(4), INIT_ONE);
    args.use[1] = parameter(g, SHAPE(4), INIT_ZERO);
    for (int i = 2; i < 4; i++) {
        args.use[i] = parameter(g, SHAPE(4), INIT_ONE);
        g->parameters[g->uses[args.use[i]].parameter].kind = PARAMETER_STATISTIC;
    }
    return add(g, kind, args, NULL);
}
static int make_batchnorm(struct graph *g) { return batchnorm_of(g, &op_batchnorm, false); }
static int make_batchnorm_relu(struct graph *g) { return batchnorm_of(g, &op_batchnorm, true); }
static int make_batchnorm_residual(struct graph *g) { return batchnorm_of(g, &op_batchnorm_residual, true); }

static int make_max_pool(struct graph *g) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 6, 5, 2)) },
                                 .attr = { .kernel = 3, .stride = 2, .padding = 1 } };
    return add(g, &op_max_pool, args, NULL);
}

static int make_average_pool(struct graph *g) {
    return add(g, &op_average_pool, (struct op_arguments){ .in = { source(g, SHAPE(B, 3, 4, 5)) } }, NULL);
}

static int make_class_token(struct graph *g) {
    struct op_arguments args = { .in = { source(g, SHAPE(B, 4, 5)) }, .n_uses = 2 };
    args.use[0] = parameter(g, SHAPE(1, 1, 5), INIT_ZERO);
    args.use[1] = parameter(g, SHAPE(1, 5, 5), INIT_ZERO);
    return add(g, &op_class_token, args, NULL);
}

static int make_first_token(struct graph *g) {
    return add(g, &op_first_token, (struct op_arguments){ .in = { source(g, SHAPE(B, 4, 5)) } }, NULL);
}

static int make_fourier_step(struct graph *g) {
    const int measured = graph_add_batch(g, "measured", BATCH_MEASUREMENTS, DTYPE_F32, SHAPE(B, 2, 4, 8));
    const int mask = graph_add_batch(g, "mask", BATCH_MASK, DTYPE_F32, SHAPE(B, 1, 4, 8));
    struct op_arguments args = { .in = { 0, 0, measured, mask }, .n_uses = 1 };
    args.in[0] = source(g, SHAPE(B, 4, 8, 1));
    args.in[1] = source(g, SHAPE(B, 4, 8, 1));
    args.use[0] = parameter(g, SHAPE(1), INIT_ONE);
    return add(g, &op_fourier_step, args, NULL);
}

static int make_cross_entropy(struct graph *g) {
    g->targets = graph_add_batch(g, "targets", BATCH_TARGETS, DTYPE_I32, SHAPE(B, 4));
    struct op_arguments args = { .in = { source(g, SHAPE(B, 4, 7)), g->targets } };
    g->losses = add(g, &op_cross_entropy, args, NULL);
    return -1;
}

/* A second loss, which is added to the graph's losses; -1: no second loss. */
static int second_loss = -1;

/* Cross-entropy and squared error of two projections of one tensor. */
static int make_two_losses(struct graph *g) {
    const int y = source(g, SHAPE(B, 4, 5));
    struct op_arguments args = { .in = { y }, .n_uses = 1, .attr.transposed = true };
    int z[2];
    for (int i = 0; i < 2; i++) {
        args.use[0] = parameter(g, SHAPE(7, 5), INIT_ZERO);
        z[i] = add(g, &op_linear, args, NULL);
    }
    g->targets = graph_add_batch(g, "targets", BATCH_TARGETS, DTYPE_I32, SHAPE(B, 4));
    g->losses = add(g, &op_cross_entropy, (struct op_arguments){ .in = { z[0], g->targets } }, NULL);
    const int reference = graph_add_batch(g, "reference", BATCH_REFERENCE, DTYPE_F32, g->tensors[z[1]].shape);
    second_loss = add(g, &op_squared_error, (struct op_arguments){ .in = { z[1], reference } }, NULL);
    return -1;
}

/* Every kind that has a gradient; squared_error is under each. */
static const struct {
    const char *name;
    make_fn *make;
} CASES[] = {
#define CASE(name)                                                                                                     \
    { #name, make_##name }
    CASE(add),
    CASE(dropout),
    CASE(embedding),
    CASE(embedding_without_positions),
    CASE(linear),
    CASE(linear_transposed),
    CASE(linear_gelu),
    CASE(linear_gelu_erf),
    CASE(linear_of_images),
    CASE(linear_packed),
    CASE(linear_packed_of_all),
    CASE(branches),
    CASE(layernorm),
    CASE(residual_layernorm),
    CASE(rmsnorm),
    CASE(residual_rmsnorm),
    CASE(attention),
    CASE(full_attention),
    CASE(grouped_turned_attention),
    CASE(swiglu),
    CASE(convolution),
    CASE(convolution_with_stride),
    CASE(convolution_of_pixels),
    CASE(convolution_relu),
    CASE(convolutions_of_one),
    CASE(shared_weights),
    CASE(batchnorm),
    CASE(batchnorm_relu),
    CASE(batchnorm_residual),
    CASE(max_pool),
    CASE(average_pool),
    CASE(class_token),
    CASE(first_token),
    CASE(fourier_step),
    CASE(cross_entropy),
    CASE(two_losses),
};

/* --- numbers ---*/

/* In [-1, 1), different for each place and tensor. */
static float number(int64_t i, int which) {
    uint32_t u = (uint32_t)i * 2654435761u + (uint32_t)(which + 1) * 2246822519u;
    u ^= u >> 15;
    u *= 2654435761u;
    u ^= u >> 13;
    return (float)((double)u / 2147483648.0 - 1);
}

static void put_numbers(struct walk *w) {
    const struct graph *g = w->graph;
    for (int p = 0; p < g->n_parameters; p++)
        for (int64_t i = 0; i < walk_elements(w, p); i++)
            w->master[p][i] = number(i, p) + (g->parameters[p].init == INIT_ONE ? 1.5f : 0);
    for (int b = 0; b < g->n_batch; b++) {
        const struct tensor *t = &g->tensors[g->batch[b]];
        for (int64_t i = 0; i < shape_elements(&t->shape); i++) {
            if (batch_input_is_integer(t->input)) /* one target in six is -1: ignored */
                ((int32_t *)w->tensor[g->batch[b]])[i] = (int32_t)(i % 6 - (t->input == BATCH_TARGETS));
            else
                ((float *)w->tensor[g->batch[b]])[i] = t->input == BATCH_MASK ? number(i, 50) > 0 : number(i, 40 + b);
        }
    }
}

/* The sum of all losses. */
static double loss(struct walk *w) {
    walk_weights(w);
    double sum = walk_forward(w) * (double)shape_elements(&w->graph->tensors[w->graph->losses].shape);
    for (int i = 0; second_loss >= 0 && i < B; i++)
        sum += (double)((const float *)w->tensor[second_loss])[i];
    return sum;
}

static bool near(double have, double want, double size) {
    return fabs(have - want) <= 5e-3 * (fabs(want) + size) + 1e-4;
}

static void check_parameter(struct walk *w, const char *name, int p, const float *gradient) {
    const float step = 4e-3f;
    const int64_t n = walk_elements(w, p);
    double size = 0;
    for (int64_t i = 0; i < n; i++)
        size += (double)gradient[i] * (double)gradient[i];
    size = sqrt(size / (double)n);
    for (int64_t i = 0; i < n; i++) {
        const float kept = w->master[p][i], above = kept + step, below = kept - step;
        w->master[p][i] = above;
        const double up = loss(w);
        w->master[p][i] = below;
        const double down = loss(w), have = (double)gradient[i];
        const double want = (up - down) / ((double)above - (double)below);
        w->master[p][i] = kept;
        if (near(have, want, size))
            continue;
        /* If ReLU or the maximum of a window changes within the difference, one side of it must agree. */
        const double here = loss(w);
        if (!near(have, (up - here) / ((double)above - (double)kept), size) &&
            !near(have, (here - down) / ((double)kept - (double)below), size))
            fail_msg("%s: the gradient of p%d[%lld] is %g, the difference %g", name, p, (long long)i,
                     (double)gradient[i], want);
    }
}

/* The loss stores its gradient over its input, which must not be a tensor that the backward pass of the case needs. */
static int project(struct graph *g, int y) {
    const struct shape *x = &g->tensors[y].shape;
    struct op_arguments args = { .in = { y }, .n_uses = 1, .attr.transposed = true };
    const int64_t width = x->dim[x->n - 1] > 1 ? x->dim[x->n - 1] : shape_elements_from(x, 1);
    args.use[0] = parameter(g, SHAPE(3, width), INIT_ZERO);
    return add(g, &op_linear, args, NULL);
}

static void check_case(const char *name, make_fn *make) {
    struct err e;
    struct walk w;
    struct graph *g = graph_new(DTYPE_F32);
    g->micro_batch = B;
    graph_begin_block(g, "case");
    second_loss = -1;
    int y = make(g);
    if (y >= 0) {
        y = project(g, y);
        const int reference = graph_add_batch(g, "reference", BATCH_REFERENCE, DTYPE_F32, g->tensors[y].shape);
        g->losses = add(g, &op_squared_error, (struct op_arguments){ .in = { y, reference } }, NULL);
    }
    graph_end_block(g, -1);
    assert_int_equal(graph_differentiate(g, &e), ST_OK);
    walk_open(&w, g, 2);
    w.loss_scale = 1;
    put_numbers(&w);
    (void)loss(&w);
    walk_backward(&w);
    for (int p = 0; p < g->n_parameters; p++) {
        if (g->parameters[p].kind == PARAMETER_STATISTIC)
            continue;
        CLEANUP(freep) float *gradient = calloc((size_t)walk_elements(&w, p), sizeof *gradient);
        memcpy(gradient, walk_gradient(&w, p), (size_t)walk_elements(&w, p) * sizeof *gradient);
        check_parameter(&w, name, p, gradient);
    }
    walk_close(&w);
}

static void every_gradient_is_a_central_difference(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)

        check_case(CASES[i].name, CASES[i].make);
}

/* The statistics of the micro-batch are its mean and its unbiased variance; evaluation uses the running statistics. */
static void batchnorm_measures_moments_and_evaluates_with_running_ones(void **state) {
    (void)state;
    struct err e;
    struct walk w;
    struct graph *g = graph_new(DTYPE_F32);
    g->micro_batch = B;
    graph_begin_block(g, "case");
    const int y = make_batchnorm(g), z = project(g, y), rows = B * 3 * 2, width = 4;
    const int reference = graph_add_batch(g, "reference", BATCH_REFERENCE, DTYPE_F32, g->tensors[z].shape);
    g->losses = add(g, &op_squared_error, (struct op_arguments){ .in = { z, reference } }, NULL);
    graph_end_block(g, -1);
    assert_int_equal(graph_differentiate(g, &e), ST_OK);
    walk_open(&w, g, 2);
    put_numbers(&w);
    (void)loss(&w);
    walk_backward(&w);
    const float *x = w.master[0], *gamma = w.master[1], *beta = w.master[2], *mean = w.master[3],
                *variance = w.master[4];
    for (int c = 0; c < width; c++) {
        double sum = 0, squares = 0;
        for (int r = 0; r < rows; r++)
            sum += (double)x[r * width + c];
        for (int r = 0; r < rows; r++)
            squares += pow((double)x[r * width + c] - sum / rows, 2);
        assert_float_equal(walk_gradient(&w, 3)[c], sum / rows, 1e-6);
        assert_float_equal(walk_gradient(&w, 4)[c], squares / (rows - 1), 1e-6);
    }
    w.training = false;
    (void)loss(&w);
    for (int i = 0; i < rows * width; i++) {
        const int c = i % width;
        const double n = ((double)x[i] - (double)mean[c]) / sqrt((double)variance[c] + 1e-3);
        assert_float_equal(((const float *)w.tensor[y])[i], n * (double)gamma[c] + (double)beta[c], 1e-5);
    }
    walk_close(&w);
}

/* The loss would write its gradient over the output that attention keeps. */
static void an_op_that_writes_over_what_is_kept_is_refused(void **state) {
    (void)state;
    struct err e;
    CLEANUP(graph_freep) struct graph *g = graph_new(DTYPE_F32);
    g->micro_batch = B;
    graph_begin_block(g, "case");
    const int y = make_attention(g);
    const int reference = graph_add_batch(g, "reference", BATCH_REFERENCE, DTYPE_F32, g->tensors[y].shape);
    g->losses = add(g, &op_squared_error, (struct op_arguments){ .in = { y, reference } }, NULL);
    graph_end_block(g, -1);
    assert_int_equal(graph_differentiate(g, &e), ST_INTERNAL);
    assert_non_null(strstr(e.msg, "squared_error"));
    assert_non_null(strstr(e.msg, "attention"));
}

static void an_op_that_cannot_add_to_a_gradient_is_refused_and_needs_a_branch(void **state) {
    (void)state;
    struct err e;
    CLEANUP(graph_freep) struct graph *g = graph_new(DTYPE_F32);
    g->micro_batch = B;
    graph_begin_block(g, "case");
    const int x = source(g, SHAPE(B, 4, 10));
    int y[2];
    for (int i = 0; i < 2; i++)
        y[i] = add(g, &op_swiglu, (struct op_arguments){ .in = { x } }, NULL);
    const int sum = project(g, add(g, &op_add, (struct op_arguments){ .in = { y[0], y[1] } }, NULL));
    const int reference = graph_add_batch(g, "reference", BATCH_REFERENCE, DTYPE_F32, g->tensors[sum].shape);
    g->losses = add(g, &op_squared_error, (struct op_arguments){ .in = { sum, reference } }, NULL);
    graph_end_block(g, -1);
    assert_int_equal(graph_differentiate(g, &e), ST_INTERNAL);
    assert_non_null(strstr(e.msg, "read the input through op_branch"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gradient_is_a_central_difference),
        cmocka_unit_test(an_op_that_writes_over_what_is_kept_is_refused),
        cmocka_unit_test(an_op_that_cannot_add_to_a_gradient_is_refused_and_needs_a_branch),
        cmocka_unit_test(batchnorm_measures_moments_and_evaluates_with_running_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
