/* How attention and rotary positions read a packed tensor qkv (B, T, (heads + 2 kv_heads) head): for op_*.c. */
#ifndef ENGINE_GRAPH_OP_HEADS_H
#define ENGINE_GRAPH_OP_HEADS_H

#include "engine/graph/op.h"

static inline struct attention_dims op_heads(const struct graph *g, const struct op *op) {
    const struct shape *qkv = &g->tensors[op->in[0]].shape;
    int64_t kv = op->attr.kv_heads ? op->attr.kv_heads : op->attr.heads;
    return (struct attention_dims){ .batch = qkv->dim[0],
                                    .time = qkv->dim[1],
                                    .heads = op->attr.heads,
                                    .kv_heads = kv,
                                    .head = qkv->dim[2] / (op->attr.heads + 2 * kv),
                                    .causal = op->attr.causal,
                                    .masked = op->attr.dropout > 0 };
}

#endif
