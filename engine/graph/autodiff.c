/* Reverse-mode differentiation. Ops are visited from last to first; each gets a reverse op if a gradient reaches one of
 * its outputs, or if it is a loss. The first reverse op that gives a tensor a gradient makes the gradient tensor, in
 * bytes of its own or those of an output's gradient (op_kind.gradient_alias). Later ones add to it. */
#include "base/alloc.h"
#include "engine/graph/graph.h"
#include "engine/graph/op.h"

#include <stdlib.h>

/* grad[t]: the tensor that holds the gradient of activation t so far, or -1. */
static status_t differentiate_input(struct graph *g, const struct op *op, int i, int *grad, struct reverse_op *r,
                                    struct err *e) {
    const struct op_kind *kind = op->kind;
    int t = op->in[i];
    if (grad[t] >= 0) {
        if (!(kind->accumulates & IN(i)))
            return err_set(e, ST_INTERNAL,
                           "op %s: %s cannot add to the gradient that its input already has; read the input through "
                           "op_branch",
                           op->name, kind->name);
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

/* needs[t]: tensor t depends on a parameter. Batch inputs, and what is computed only from them, get no gradient. */
static void find_needs(const struct graph *g, bool *needs) {
    for (int i = 0; i < g->n_ops; i++) {
        const struct op *op = &g->ops[i];
        bool any = op->use[0] >= 0;
        for (int k = 0; k < OP_INPUTS; k++)
            any |= op->in[k] >= 0 && op->kind->differentiable & IN(k) && needs[op->in[k]];
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (op->out[k] >= 0)
                needs[op->out[k]] = any;
    }
}

static status_t differentiate_op(struct graph *g, int index, const bool *needs, int *grad, struct err *e) {
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
        if (op->in[i] >= 0 && op->kind->differentiable & IN(i) && needs[op->in[i]])
            TRY(differentiate_input(g, op, i, grad, &r, e));
    }
    g->reverse[g->n_reverse++] = r;
    return ST_OK;
}

/* Whether the reverse op of `op` reads tensor t. */
static bool keeps(const struct op *op, int t) {
    for (int i = 0; i < OP_INPUTS; i++)
        if (op->in[i] == t && op->kind->saved_in & IN(i))
            return true;
    for (int i = 0; i < OP_OUTPUTS; i++)
        if (op->out[i] == t && op->kind->saved_out & OUT(i))
            return true;
    return false;
}

/* No op may work in place on a tensor that the reverse op of an earlier op still reads. */
static status_t check_in_place(const struct graph *g, int index, struct err *e) {
    const struct op *op = &g->ops[index];
    for (int k = 0; k < OP_OUTPUTS + 1; k++) {
        int t = -1;
        if (k == OP_OUTPUTS)
            t = op->kind->gradient_in_forward ? op->in[0] : -1;
        else if (op->out[k] >= 0)
            t = g->tensors[op->out[k]].alias_of;
        for (int i = 0; t >= 0 && i < index; i++)
            if (keeps(&g->ops[i], t))
                return err_set(e, ST_INTERNAL, "op %s works in the place of %s, which op %s keeps", op->name,
                               g->tensors[t].name, g->ops[i].name);
    }
    return ST_OK;
}

status_t graph_differentiate(struct graph *g, struct err *e) {
    for (int i = 0; i < g->n_ops; i++)
        TRY(check_in_place(g, i, e));
    CLEANUP(freep) int *grad = alloc_zeroed((size_t)g->n_tensors, sizeof *grad);
    CLEANUP(freep) bool *needs = alloc_zeroed((size_t)g->n_tensors, sizeof *needs);
    g->reverse = alloc_zeroed((size_t)g->n_ops, sizeof *g->reverse);
    find_needs(g, needs);
    for (int t = 0; t < g->n_tensors; t++)
        grad[t] = -1;
    for (int b = g->n_blocks - 1; b >= 0; b--) {
        struct block *block = &g->blocks[b];
        block->first_reverse = g->n_reverse;
        for (int i = block->first_op + block->n_ops - 1; i >= block->first_op; i--)
            TRY(differentiate_op(g, i, needs, grad, e));
        block->n_reverse = g->n_reverse - block->first_reverse;
    }
    return ST_OK;
}
