#include "engine/graph/op_heads.h"

/* qkv (B, T, (heads + 2 kv_heads) head) -> the same with queries and keys turned by their positions, in place; its
 * gradient is turned back, in place. */

static status_t shape(struct graph *g, struct op *op, struct err *e) {
    struct attention_dims d = op_heads(g, op);
    if (d.head < 2 || d.head % 2)
        return err_set(e, ST_INVALID_ARGUMENT, "op %s: a head of %lld numbers cannot be turned in pairs", op->name,
                       (long long)d.head);
    graph_add_output(g, op, 0, "", g->tensors[op->in[0]].shape, op->in[0]);
    return ST_OK;
}

static status_t turn(const struct op_call *c, element_t *to, const element_t *from, bool inverse, struct err *e) {
    struct attention_dims d = op_heads(c->graph, c->op);
    return c->kernels->rope(c->kernels, to, from, &d, &c->op->attr.rope, inverse, e);
}

static status_t forward(const struct op_call *c, struct err *e) { return turn(c, c->out[0], c->in[0], false, e); }
static status_t backward_input(const struct op_call *c, struct err *e) {
    return turn(c, c->d_in[0], c->d_out[0], true, e);
}

const struct op_kind op_rope = {
    .name = "rope",
    .n_in = 1,
    .differentiable = IN(0),
    .gradient_alias = { 1 },
    .shape = shape,
    .forward = forward,
    .backward_input = backward_input,
};
