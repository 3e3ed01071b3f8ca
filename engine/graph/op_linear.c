/* x (..., in), any dimensions before and any number of dimensions that make up `in`.
 * linear: y (..., out) = x W + b; uses: weight (in, out), or (out, in ...) when transposed, and an optional bias
 * (out).
 * linear_gelu: also keeps pre = x W + b, y = gelu(pre): by tanh, which products compute in passing, or by erf, in a
 * pass of its own.
 * linear_packed: up to OP_PARAMETERS weights (out_i, in), their results side by side in y (..., sum of out_i): layers
 * that a checkpoint stores separately and the next op reads as one tensor. */
#include "engine/graph/op.h"

static struct linear_dims dims_of(const struct graph *g, const struct op *op, int use) {
    const struct shape *w = &g->parameters[g->uses[op->use[use]].parameter].shape;
    struct linear_dims d = { .transposed = op->attr.transposed };
    d.in = d.transposed ? shape_elements_from(w, 1) : w->dim[0];
    d.out = d.transposed ? w->dim[0] : w->dim[1];
    d.rows = shape_elements(&g->tensors[op->in[0]].shape) / d.in;
    return d;
}

static struct linear_dims dims(const struct graph *g, const struct op *op) { return dims_of(g, op, 0); }

/* The input's shape with its last dimensions, those that make up `in`, replaced by `out`. */
static status_t output_shape(const struct graph *g, const struct op *op, int64_t in, int64_t out, struct shape *ret,
                             struct err *e) {
    const struct shape *x = &g->tensors[op->in[0]].shape;
    int first = x->n;
    while (first > 1 && shape_elements_from(x, first) < in)
        first--;
    if (shape_elements_from(x, first) != in)
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: its input has width %lld, its weight takes %lld", op->name,
                       (long long)shape_elements_from(x, first), (long long)in);
    *ret = *x;
    ret->n = first + 1;
    ret->dim[first] = out;
    return ST_OK;
}

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    struct linear_dims d = dims(g, op);
    struct shape y;
    TRY(output_shape(g, op, d.in, d.out, &y, e));
    graph_add_output(g, op, 0, "", y, -1);
    if (op->kind == &op_linear_gelu)
        graph_add_output(g, op, 1, ".pre", y, -1);
    return ST_OK;
}

static status_t forward(const struct op_call *c, struct err *e) {
    struct linear_dims d = dims(c->graph, c->op);
    const struct kernels *k = c->kernels;
    if (c->op->attr.gelu_erf) {
        TRY(k->linear_forward(k, c->out[1], NULL, c->in[0], c->param[0], c->param[1], &d, e));
        return k->gelu_erf_forward(k, c->out[0], c->out[1], d.rows * d.out, e);
    }
    return k->linear_forward(k, c->out[0], c->out[1], c->in[0], c->param[0], c->param[1], &d, e);
}

static status_t backward_input(const struct op_call *c, struct err *e) {
    struct linear_dims d = dims(c->graph, c->op);
    const struct kernels *k = c->kernels;
    const element_t *pre = c->out[1];
    if (c->op->attr.gelu_erf) {
        TRY(k->gelu_erf_backward(k, c->d_out[0], c->d_out[0], pre, d.rows * d.out, e));
        pre = NULL;
    }
    if (pre || c->d_param[1])
        TRY(k->linear_backward_bias(k, c->d_param[1], c->d_out[0], pre, &d, c->accumulate_param, c->workspace, e));
    if (!c->d_in[0])
        return ST_OK;
    return k->linear_backward_input(k, c->d_in[0], c->d_out[0], c->param[0], &d, c->accumulate[0], e);
}

static status_t backward_weight(const struct op_call *c, struct err *e) {
    struct linear_dims d = dims(c->graph, c->op);
    return c->kernels->linear_backward_weight(c->kernels, c->d_param[0], c->in[0], c->d_out[0], &d, c->accumulate_param,
                                              c->workspace, e);
}

static size_t workspace(const struct kernels *k, const struct graph *g, const struct op *op) {
    struct linear_dims d = dims(g, op);
    size_t bias = k->linear_backward_bias_workspace(k, &d), weight = k->linear_backward_weight_workspace(k, &d);
    return bias > weight ? bias : weight;
}

static int linears(const struct graph *g, const struct op *op, struct linear_dims *ret) {
    ret[0] = dims(g, op);
    return 1;
}

static double flops(const struct graph *g, const struct op *op) {
    double sum = 0;
    for (int i = 0; i < OP_PARAMETERS && op->use[i] >= 0; i++) {
        if (g->parameters[g->uses[op->use[i]].parameter].shape.n < 2)
            break; /* a bias */
        struct linear_dims d = dims_of(g, op, i);
        sum += 2.0 * (double)d.rows * (double)d.in * (double)d.out;
    }
    return sum;
}

/* --- packed ---*/

/* Of layer i, whose slice begins `at` numbers into a row. */
static struct linear_dims slice(const struct graph *g, const struct op *op, int i, int64_t *at) {
    struct linear_dims d = dims_of(g, op, i);
    const struct shape *y = &g->tensors[op->out[0]].shape;
    d.y_stride = y->dim[y->n - 1];
    *at = 0;
    for (int k = 0; k < i; k++)
        *at += dims_of(g, op, k).out;
    return d;
}

static element_t *part(const struct op_call *c, void *y, int64_t at) {
    return (char *)y + (size_t)at * kernels_element_bytes(c->kernels);
}

static status_t shape_packed(struct graph *g, struct op *op, struct err *e) {
    struct shape y;
    int64_t out = 0;
    for (int i = 0; i < OP_PARAMETERS && op->use[i] >= 0; i++)
        out += dims_of(g, op, i).out;
    TRY(output_shape(g, op, dims(g, op).in, out, &y, e));
    graph_add_output(g, op, 0, "", y, -1);
    return ST_OK;
}

static status_t forward_packed(const struct op_call *c, struct err *e) {
    int64_t at;
    for (int i = 0; i < OP_PARAMETERS && c->op->use[i] >= 0; i++) {
        struct linear_dims d = slice(c->graph, c->op, i, &at);
        TRY(c->kernels->linear_forward(c->kernels, part(c, c->out[0], at), NULL, c->in[0], c->param[i], NULL, &d, e));
    }
    return ST_OK;
}

static status_t backward_input_packed(const struct op_call *c, struct err *e) {
    int64_t at;
    for (int i = 0; i < OP_PARAMETERS && c->op->use[i] >= 0; i++) {
        struct linear_dims d = slice(c->graph, c->op, i, &at);
        TRY(c->kernels->linear_backward_input(c->kernels, c->d_in[0], part(c, c->d_out[0], at), c->param[i], &d,
                                              c->accumulate[0] || i > 0, e));
    }
    return ST_OK;
}

static status_t backward_weight_packed(const struct op_call *c, struct err *e) {
    int64_t at;
    for (int i = 0; i < OP_PARAMETERS && c->op->use[i] >= 0; i++) {
        struct linear_dims d = slice(c->graph, c->op, i, &at);
        TRY(c->kernels->linear_backward_weight(c->kernels, c->d_param[i], c->in[0], part(c, c->d_out[0], at), &d,
                                               c->accumulate_param, c->workspace, e));
    }
    return ST_OK;
}

static size_t workspace_packed(const struct kernels *k, const struct graph *g, const struct op *op) {
    size_t max = 0;
    int64_t at;
    for (int i = 0; i < OP_PARAMETERS && op->use[i] >= 0; i++) {
        struct linear_dims d = slice(g, op, i, &at);
        size_t bytes = k->linear_backward_weight_workspace(k, &d);
        max = bytes > max ? bytes : max;
    }
    return max;
}

static int linears_packed(const struct graph *g, const struct op *op, struct linear_dims *ret) {
    int n = 0;
    for (int64_t at; n < OP_PARAMETERS && op->use[n] >= 0; n++)
        ret[n] = slice(g, op, n, &at);
    return n;
}

const struct op_kind op_linear = {
    .name = "linear",
    .n_in = 1,
    .n_uses_min = 1,
    .saved_in = IN(0),
    .differentiable = IN(0),
    .accumulates = IN(0),
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .workspace = workspace,
    .linears = linears,
    .flops = flops,
};

const struct op_kind op_linear_gelu = {
    .name = "linear_gelu",
    .n_in = 1,
    .n_uses_min = 1,
    .saved_in = IN(0),
    .saved_out = OUT(1),
    .differentiable = IN(0),
    .accumulates = IN(0),
    .d_out_scratch = true,
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .workspace = workspace,
    .linears = linears,
    .flops = flops,
};

const struct op_kind op_linear_packed = {
    .name = "linear_packed",
    .n_in = 1,
    .n_uses_min = 1,
    .saved_in = IN(0),
    .differentiable = IN(0),
    .accumulates = IN(0),
    .shape = shape_packed,
    .forward = forward_packed,
    .backward_input = backward_input_packed,
    .backward_weight = backward_weight_packed,
    .weight_uses = (1u << OP_PARAMETERS) - 1,
    .workspace = workspace_packed,
    .linears = linears_packed,
    .flops = flops,
};
