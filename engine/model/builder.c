#include "engine/model/builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PART_NAME = 48 }; /* "self_attention.out_proj.weight" */

void builder_prefix(struct builder *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(b->prefix, sizeof b->prefix, format, args);
    va_end(args);
}

int builder_block(struct builder *b, const char *format, ...) {
    char name[GRAPH_NAME];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    int block = graph_begin_block(b->g, name); /* before the array is read, because this may move the array */
    return b->g->blocks[block].input;
}

static int add_parameter(struct builder *b, const char *name, struct parameter p) {
    snprintf(p.name, sizeof p.name, "%s%s%s", b->root, b->prefix, name);
    for (int i = 0; i < b->g->n_parameters; i++)
        if (strcmp(b->g->parameters[i].name, p.name) == 0)
            return i;
    return graph_add_parameter(b->g, &p);
}

int builder_table(struct builder *b, const char *name, struct shape shape, double std) {
    return add_parameter(b, name,
                         (struct parameter){ .shape = shape, .init = INIT_NORMAL, .init_std = std, .decay = true });
}

int builder_undecayed(struct builder *b, const char *name, struct shape shape, double std) {
    return add_parameter(b, name, (struct parameter){ .shape = shape, .init = INIT_NORMAL, .init_std = std });
}

int builder_vector(struct builder *b, const char *name, int64_t n, enum init init) {
    return add_parameter(b, name, (struct parameter){ .shape = SHAPE(n), .init = init });
}

int builder_statistic(struct builder *b, const char *name, int64_t n, enum init init, double momentum) {
    return add_parameter(
        b, name,
        (struct parameter){ .kind = PARAMETER_STATISTIC, .shape = SHAPE(n), .init = init, .momentum = momentum });
}

int builder_constant(struct builder *b, const char *name, double start) {
    return builder_vector(b, name, 1, start == 0 ? INIT_ZERO : INIT_ONE);
}

int builder_matrix_use(struct builder *b, const char *name, struct shape shape, double std) {
    int p = builder_table(b, name, shape, std);
    b->g->parameters[p].matrix = shape.n == 2;
    return graph_use(b->g, p, 0);
}

int builder_vector_use(struct builder *b, const char *name, int64_t n, enum init init) {
    return graph_use(b->g, builder_vector(b, name, n, init), 0);
}

status_t builder_op(struct builder *b, const struct op_kind *kind, const char *name, struct op_arguments args, int *y,
                    int out[OP_OUTPUTS], struct err *e) {
    char full[GRAPH_NAME];
    int outputs[OP_OUTPUTS];
    snprintf(full, sizeof full, "%s%s", b->prefix, name);
    args.name = full;
    args.n_in = (int)kind->n_in;
    TRY(graph_add_op(b->g, kind, &args, out ? out : outputs, e));
    if (y)
        *y = out ? out[0] : outputs[0];
    return ST_OK;
}

status_t builder_linear(struct builder *b, const struct linear_layer *l, int x, int *y, struct err *e) {
    const struct shape *in = &b->g->tensors[x].shape;
    int64_t width = in->n == 4 ? shape_elements_from(in, 1) : in->dim[in->n - 1]; /* an image is one vector */
    char weight[PART_NAME], bias[PART_NAME];
    snprintf(weight, sizeof weight, "%s.weight", l->name);
    snprintf(bias, sizeof bias, "%s.bias", l->name);
    struct op_arguments args = { .in = { x },
                                 .n_uses = 1,
                                 .attr = { .transposed = l->transposed, .gelu_erf = l->gelu_erf } };
    args.use[0] = builder_matrix_use(b, weight, l->transposed ? SHAPE(l->out, width) : SHAPE(width, l->out), l->std);
    struct parameter *p = &b->g->parameters[b->g->uses[args.use[0]].parameter];
    p->init = l->uniform ? INIT_UNIFORM : INIT_NORMAL;
    p->input_first = !l->transposed;
    p->packed = l->packed;
    if (l->bias) {
        args.use[args.n_uses++] = builder_vector_use(b, bias, l->out, l->uniform ? INIT_UNIFORM : INIT_ZERO);
        b->g->parameters[b->g->uses[args.use[1]].parameter].init_std = l->uniform ? l->std : 0;
    }
    return builder_op(b, l->gelu || l->gelu_erf ? &op_linear_gelu : &op_linear, l->name, args, y, NULL, e);
}

status_t builder_layernorm(struct builder *b, const char *name, double epsilon, int x, int branch, int *r, int *y,
                           struct err *e) {
    int64_t width = b->g->tensors[x].shape.dim[2];
    char weight[PART_NAME], bias[PART_NAME];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    int w = builder_vector_use(b, weight, width, INIT_ONE), v = builder_vector_use(b, bias, width, INIT_ZERO);
    struct op_arguments args = { .in = { x, branch }, .use = { w, v }, .n_uses = 2, .attr.epsilon = epsilon };
    int out[OP_OUTPUTS];
    if (branch < 0)
        return builder_op(b, &op_layernorm, name, args, y, NULL, e);
    TRY(builder_op(b, &op_residual_layernorm, name, args, r, out, e));
    *y = out[1];
    return ST_OK;
}

status_t builder_dropout(struct builder *b, const char *name, double probability, int *x, struct err *e) {
    if (probability == 0)
        return ST_OK;
    return builder_op(b, &op_dropout, name, (struct op_arguments){ .in = { *x }, .attr.dropout = probability }, x, NULL,
                      e);
}

status_t builder_add(struct builder *b, const char *name, int a, int branch, int *y, struct err *e) {
    return builder_op(b, &op_add, name, (struct op_arguments){ .in = { a, branch } }, y, NULL, e);
}

struct builder_labels builder_add_labels(struct builder *b, const struct model_data *data) {
    const struct shape rows = SHAPE(b->g->micro_batch);
    struct builder_labels labels = { .partners = -1, .shares = -1 };
    labels.own = graph_add_batch(b->g, "labels", BATCH_LABELS, DTYPE_I32, rows);
    if (data->mixup) {
        labels.partners = graph_add_batch(b->g, "partners", BATCH_PARTNERS, DTYPE_I32, rows);
        labels.shares = graph_add_batch(b->g, "shares", BATCH_SHARES, DTYPE_F32, rows);
    }
    return labels;
}

status_t builder_classify(struct builder *b, int logits, const struct builder_labels *labels, struct err *e) {
    int accuracy;
    const struct op_arguments args = { .in = { logits, labels->own } },
                              mixed = { .in = { logits, labels->own, labels->partners, labels->shares } };
    const bool is_mixed = labels->partners >= 0;
    b->g->logits = logits;
    TRY(builder_op(b, &op_accuracy, "accuracy", args, &accuracy, NULL, e));
    graph_add_report(b->g, "accuracy", accuracy);
    TRY(builder_op(b, is_mixed ? &op_mixed_cross_entropy : &op_cross_entropy, "loss", is_mixed ? mixed : args,
                   &b->g->losses, NULL, e));
    graph_end_block(b->g, -1);
    return ST_OK;
}
