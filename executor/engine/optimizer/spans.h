/* A call's pieces as the list that elementwise kernels take. Private to this folder. */
#ifndef EXECUTOR_ENGINE_OPTIMIZER_SPANS_H
#define EXECUTOR_ENGINE_OPTIMIZER_SPANS_H

#include "executor/engine/optimizer/optimizer.h"

/* Fills room [n_pieces] and returns it. */
static inline const struct span *spans_of(const struct optimizer_call *c, struct span *room) {
    for (int i = 0; i < c->n_pieces; i++) {
        const struct optimizer_piece *p = &c->pieces[i];
        room[i] = (struct span){ .n = p->count,
                                 .p = p->master,
                                 .weight = p->weight,
                                 .m = p->state[0],
                                 .v = p->state[1],
                                 .x = p->gradient,
                                 .decay = p->parameter->decay };
    }
    return room;
}

#endif
