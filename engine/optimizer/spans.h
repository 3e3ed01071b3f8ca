/* A call's shards as the list that elementwise kernels take. Private to this folder. */
#ifndef ENGINE_OPTIMIZER_SPANS_H
#define ENGINE_OPTIMIZER_SPANS_H

#include "engine/optimizer/optimizer.h"

/* Fills spans [n_shards] and returns it. */
static inline const struct span *spans_of(const struct optimizer_call *c, struct span *spans) {
    for (int i = 0; i < c->n_shards; i++) {
        const struct optimizer_shard *p = &c->shards[i];
        spans[i] = (struct span){ .n = p->count,
                                  .p = p->master,
                                  .weight = p->weight,
                                  .m = p->state[0],
                                  .v = p->state[1],
                                  .x = p->gradient,
                                  .decay = p->parameter->decay };
    }
    return spans;
}

#endif
