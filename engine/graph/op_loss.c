#include "engine/graph/op.h"

/* cross_entropy: logits (..., V), targets (...) -> losses (...). In training the logits become their gradient in the
 * same pass, so that nothing of the size of the logits is kept.
 * mixed_cross_entropy: logits (..., V), targets (...), partners (...), shares (...) fp32 -> losses (...): of the target
 * with the weight share, and of the partner with the rest. In all else as cross_entropy.
 * squared_error: x (B, ...), reference (B, ...) fp32 -> the mean over a sample's numbers (B); x becomes its gradient.
 * psnr: the same inputs -> the peak signal-to-noise ratio in dB (B).
 * accuracy: cross_entropy's inputs -> 1 where the likeliest class is the target, else 0. */

static int64_t vocabulary(const struct shape *logits) { return logits->dim[logits->n - 1]; }

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    struct shape rows = g->tensors[op->in[0]].shape;
    rows.n--;
    if (shape_elements(&rows) != shape_elements(&g->tensors[op->in[1]].shape))
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: not one target for each row of logits", op->name);
    graph_add_statistic(g, op, 0, "", rows);
    return ST_OK;
}

static status_t shape_mixed(struct graph *g, struct op *op, struct err *e) {
    const int64_t rows = shape_elements(&g->tensors[op->in[1]].shape);
    for (int i = 2; i < 4; i++)
        if (shape_elements(&g->tensors[op->in[i]].shape) != rows)
            return err_set(e, ST_INVALID_ARGUMENT, "op %s: not one partner and one share for each target", op->name);
    return shape(g, op, e);
}

static status_t cross_entropy(const struct op_call *c, const int32_t *partners, const float *shares, struct err *e) {
    const struct shape *logits = &c->graph->tensors[c->op->in[0]].shape;
    return c->kernels->cross_entropy(c->kernels, c->out[0], c->in[0], c->in[1], partners, shares,
                                     shape_elements(logits) / vocabulary(logits), vocabulary(logits),
                                     c->training ? c->loss_scale : NULL, e);
}

static status_t forward(const struct op_call *c, struct err *e) { return cross_entropy(c, NULL, NULL, e); }

static status_t forward_mixed(const struct op_call *c, struct err *e) {
    return cross_entropy(c, c->in[2], c->in[3], e);
}

static status_t forward_accuracy(const struct op_call *c, struct err *e) {
    const struct shape *logits = &c->graph->tensors[c->op->in[0]].shape;
    return c->kernels->top1(c->kernels, c->out[0], c->in[0], c->in[1], shape_elements(logits) / vocabulary(logits),
                            vocabulary(logits), e);
}

const struct op_kind op_cross_entropy = {
    .name = "cross_entropy",
    .n_in = 2,
    .differentiable = IN(0),
    .gradient_in_forward = true,
    .shape = shape,
    .forward = forward,
};

const struct op_kind op_mixed_cross_entropy = {
    .name = "mixed_cross_entropy",
    .n_in = 4,
    .differentiable = IN(0),
    .gradient_in_forward = true,
    .shape = shape_mixed,
    .forward = forward_mixed,
};

const struct op_kind op_accuracy = {
    .name = "accuracy",
    .n_in = 2,
    .shape = shape,
    .forward = forward_accuracy,
};

static status_t shape_samples(struct graph *g, struct op *op, struct err *e) {
    const struct shape *x = &g->tensors[op->in[0]].shape, *reference = &g->tensors[op->in[1]].shape;
    if (shape_elements(x) != shape_elements(reference))
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: the reference has another shape", op->name);
    graph_add_statistic(g, op, 0, "", SHAPE(x->dim[0]));
    return ST_OK;
}

static status_t forward_squared_error(const struct op_call *c, struct err *e) {
    const struct shape *x = &c->graph->tensors[c->op->in[0]].shape;
    return c->kernels->squared_error(c->kernels, c->out[0], c->in[0], c->in[1], x->dim[0], shape_elements_from(x, 1),
                                     c->training ? c->loss_scale : NULL, e);
}

static status_t forward_psnr(const struct op_call *c, struct err *e) {
    const struct shape *x = &c->graph->tensors[c->op->in[0]].shape;
    return c->kernels->psnr(c->kernels, c->out[0], c->in[0], c->in[1], x->dim[0], shape_elements_from(x, 1), e);
}

const struct op_kind op_squared_error = {
    .name = "squared_error",
    .n_in = 2,
    .differentiable = IN(0),
    .gradient_in_forward = true,
    .shape = shape_samples,
    .forward = forward_squared_error,
};

const struct op_kind op_psnr = {
    .name = "psnr",
    .n_in = 2,
    .shape = shape_samples,
    .forward = forward_psnr,
};
