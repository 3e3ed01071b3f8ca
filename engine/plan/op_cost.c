#include "engine/plan/op_cost.h"

#include "engine/graph/op.h"

static double tensor_bytes(const struct graph *g, int t) { return t < 0 ? 0 : (double)graph_tensor_bytes(g, t); }

static double parameter_bytes(const struct graph *g, int use, size_t element) {
    return use < 0 ? 0 : (double)(shape_elements(&g->parameters[g->uses[use].parameter].shape)) * (double)element;
}

static double weight_bytes(const struct graph *g, const struct op *op) {
    double bytes = 0;
    for (int i = 0; i < OP_PARAMETERS; i++)
        bytes += parameter_bytes(g, op->use[i], dtype_bytes(g->element));
    return bytes;
}

/* Accumulated: read, added to and written. */
static double gradient_bytes(const struct graph *g, const struct op *op, bool weight) {
    double bytes = 0;
    for (int i = 0; i < OP_PARAMETERS; i++)
        if (op_weight_use(op->kind, i) == weight)
            bytes += 2 * parameter_bytes(g, op->use[i], sizeof(float));
    return bytes;
}

struct op_cost cost_forward(const struct graph *g, int index) {
    const struct op *op = &g->ops[index];
    struct op_cost c = { .flops = op->kind->flops ? op->kind->flops(g, op) : 0 };
    if (op->kind->bytes) {
        c.bytes = op->kind->bytes(g, op);
        return c;
    }
    c.bytes = weight_bytes(g, op);
    for (int i = 0; i < OP_INPUTS; i++)
        c.bytes += tensor_bytes(g, op->in[i]);
    for (int i = 0; i < OP_OUTPUTS; i++)
        c.bytes += tensor_bytes(g, op->out[i]);
    return c;
}

struct op_cost cost_backward_input(const struct graph *g, int reverse) {
    const struct reverse_op *r = &g->reverse[reverse];
    const struct op *op = &g->ops[r->op];
    const struct op_kind *kind = op->kind;
    struct op_cost c = { 0 };
    if (kind->gradient_in_forward)
        return c;
    if (kind->flops)
        c.flops = kind->flops(g, op) * (kind->backward_weight ? 1 : 2);
    c.bytes = gradient_bytes(g, op, false) + weight_bytes(g, op);
    for (int i = 0; i < OP_INPUTS; i++) {
        if (kind->saved_in & IN(i))
            c.bytes += tensor_bytes(g, op->in[i]);
        if (r->d_in[i] >= 0 && !(kind->reverse_is_view && !r->accumulate[i]))
            c.bytes += tensor_bytes(g, r->d_in[i]) * (r->accumulate[i] ? 2 : 1);
    }
    for (int i = 0; i < OP_OUTPUTS; i++) {
        if (kind->saved_out & OUT(i))
            c.bytes += tensor_bytes(g, op->out[i]);
        c.bytes += tensor_bytes(g, r->d_out[i]);
    }
    return c;
}

struct op_cost cost_backward_weight(const struct graph *g, int reverse) {
    const struct reverse_op *r = &g->reverse[reverse];
    const struct op *op = &g->ops[r->op];
    if (!op->kind->backward_weight)
        return (struct op_cost){ 0 };
    return (struct op_cost){ .flops = op->kind->flops ? op->kind->flops(g, op) : 0,
                             .bytes = gradient_bytes(g, op, true) + tensor_bytes(g, op->in[0]) +
                                      tensor_bytes(g, r->d_out[0]) };
}

static void add(struct op_cost *sum, struct op_cost c) {
    sum->flops += c.flops;
    sum->bytes += c.bytes;
}

struct op_cost cost_block(const struct graph *g, int block) {
    const struct block *b = &g->blocks[block];
    struct op_cost sum = { 0 };
    for (int i = 0; i < b->n_ops; i++)
        add(&sum, cost_forward(g, b->first_op + i));
    for (int r = b->first_reverse; r < b->first_reverse + b->n_reverse; r++) {
        add(&sum, cost_backward_input(g, r));
        add(&sum, cost_backward_weight(g, r));
    }
    return sum;
}
