#include "executor/engine/graph/graph.h"
#include "executor/engine/graph/op.h"

#include <stdlib.h>

/* grad[t]: the tensor that holds the gradient of activation t so far, or -1. */
static status_t differentiate_input(struct graph *g, const struct op *op, int i, int *grad, struct reverse_op *r,
                                    struct err *e) {
    const struct op_kind *kind = op->kind;
    int t = op->in[i];
    if (grad[t] >= 0) {
        if (!(kind->accumulates & IN(i)))
            return err_set(e, ST_INTERNAL, "op %s: %s cannot add to the gradient that its input already has", op->name,
                           kind->name);
        r->d_in[i] = grad[t];
        r->accumulate[i] = true;
        return ST_OK;
    }
    int alias = -1;
    if (kind->gradient_in_forward)
        alias = t;
    else if (kind->gradient_alias[i])
        alias = r->d_out[kind->gradient_alias[i] - 1];
    r->d_in[i] = grad[t] = graph_add_gradient(g, t, alias);
    return ST_OK;
}

static status_t differentiate_op(struct graph *g, int index, int *grad, struct err *e) {
    const struct op *op = &g->ops[index];
    struct reverse_op r = { .op = index };
    bool needed = op->kind->gradient_in_forward;
    for (int i = 0; i < OP_OUTPUTS; i++) {
        r.d_out[i] = op->out[i] >= 0 ? grad[op->out[i]] : -1;
        needed |= r.d_out[i] >= 0;
    }
    if (!needed)
        return ST_OK;
    for (int i = 0; i < OP_INPUTS; i++) {
        r.d_in[i] = -1;
        if (op->in[i] >= 0 && op->kind->differentiable & IN(i))
            TRY(differentiate_input(g, op, i, grad, &r, e));
    }
    g->reverse[g->n_reverse++] = r;
    return ST_OK;
}

status_t graph_differentiate(struct graph *g, struct err *e) {
    CLEANUP(freep) int *grad = malloc((size_t)g->n_tensors * sizeof *grad);
    g->reverse = calloc((size_t)g->n_ops, sizeof *g->reverse);
    if (!grad || !g->reverse)
        abort();
    for (int t = 0; t < g->n_tensors; t++)
        grad[t] = -1;
    for (int b = g->n_blocks - 1; b >= 0; b--) {
        struct block *block = &g->blocks[b];
        block->first_reverse = g->n_reverse;
        for (int i = block->first_op + block->n_ops - 1; i >= block->first_op; i--)
            TRY(differentiate_op(g, i, grad, e));
        block->n_reverse = g->n_reverse - block->first_reverse;
    }
    return ST_OK;
}
