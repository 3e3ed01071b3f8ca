#include "executor/engine/plan/lower.h"

#include "executor/engine/graph/op.h"

#include <stdlib.h>

/* One use: consecutive instructions of a block. `uses` holds those of one micro-batch, which repeat. */
struct use {
    int block;
    bool backward;
};

struct unit_lowering {
    struct use *uses;
    int n_uses;
    int total, now;    /* over all micro-batches; now = -1 before the first */
    bool *needed;      /* [2][n_blocks][n_buckets]: forward, backward */
    int *entry;        /* [n_buckets] its GATHER; -1 = not here */
    int *here, n_here; /* buckets with entry >= 0 */
};

static bool *needed(const struct lowering *l, int use) {
    const struct use *u = &l->units->uses[use % l->units->n_uses];
    size_t row = (size_t)(u->backward ? l->p->graph->n_blocks : 0) + (size_t)u->block;
    return l->units->needed + row * (size_t)l->p->n_buckets;
}

static void note_uses(struct lowering *l, enum phase_kind kind) {
    const struct graph *g = l->p->graph;
    const struct program *program = &l->b->programs[kind][0];
    struct unit_lowering *u = l->units;
    for (int k = 0; k < program->n; k++) {
        const struct instruction *i = &program->items[k];
        if (i->op < 0)
            continue;
        const bool forward = i->kind == INSTRUCTION_FORWARD || i->kind == INSTRUCTION_RECOMPUTE;
        const struct op *op = &g->ops[forward ? i->op : g->reverse[i->op].op];
        const bool backward = kind == PHASE_BACKWARD;
        if (!u->n_uses || u->uses[u->n_uses - 1].block != op->block || u->uses[u->n_uses - 1].backward != backward)
            u->uses[u->n_uses++] = (struct use){ .block = op->block, .backward = backward };
        /* An op without a gradient for its input goes back without its weights: embeddings. */
        if (!forward && !op->kind->differentiable)
            continue;
        bool *row = needed(l, u->n_uses - 1);
        for (int s = 0; s < OP_PARAMETERS; s++)
            if (op->slot[s] >= 0)
                row[plan_bucket_at(l->p, l->p->slot_begin[g->parameters[g->slots[op->slot[s]].parameter].first_slot])] =
                    true;
    }
}

status_t units_open(struct lowering *l, struct err *e) {
    const struct graph *g = l->p->graph;
    TRY(array_new(&l->units, 1, e));
    struct unit_lowering *u = l->units;
    TRY(array_new(&u->uses, 2 * g->n_blocks, e));
    TRY(array_new(&u->needed, 2 * g->n_blocks * l->p->n_buckets, e));
    TRY(array_new(&u->entry, l->p->n_buckets, e));
    TRY(array_new(&u->here, l->p->n_buckets, e));
    for (int b = 0; b < l->p->n_buckets; b++)
        u->entry[b] = -1;
    note_uses(l, PHASE_FORWARD);
    note_uses(l, PHASE_BACKWARD);
    u->total = u->n_uses * l->n;
    u->now = -1;
    return ST_OK;
}

struct unit_lowering *units_close(struct unit_lowering *u) {
    if (!u)
        return NULL;
    free(u->uses);
    free(u->needed);
    free(u->entry);
    free(u->here);
    free(u);
    return NULL;
}

static status_t gather(struct lowering *l, int use, struct err *e) {
    struct unit_lowering *u = l->units;
    const bool *row = needed(l, use);
    for (int b = 0; b < l->p->n_buckets; b++) {
        if (!row[b] || u->entry[b] >= 0)
            continue;
        TRY(lower_gather(l, b, e));
        u->entry[b] = l->p->queue[QUEUE_DATA].n - 1;
        u->here[u->n_here++] = b;
    }
    return ST_OK;
}

static status_t drop(struct lowering *l, const bool *still, struct err *e) {
    struct unit_lowering *u = l->units;
    int n = 0;
    for (int k = 0; k < u->n_here; k++) {
        int b = u->here[k];
        if (still && still[b]) {
            u->here[n++] = b;
            continue;
        }
        struct instruction i = plan_instruction(INSTRUCTION_DROP);
        i.entry = b;
        TRY(plan_emit(&l->p->queue[QUEUE_COMPUTE], i, e));
        u->entry[b] = -1;
    }
    u->n_here = n;
    return ST_OK;
}

status_t units_before(struct lowering *l, int block, struct err *e) {
    struct unit_lowering *u = l->units;
    const bool backward = l->at >= l->b->programs[PHASE_FORWARD][0].n;
    if (u->now >= 0) {
        const struct use *now = &u->uses[u->now % u->n_uses];
        if (now->block == block && now->backward == backward)
            return ST_OK;
    }
    int use = ++u->now;
    TRY(drop(l, needed(l, use), e));
    TRY(gather(l, use, e));
    for (int k = 0; k < u->n_here; k++)
        TRY(lower_wait(l, QUEUE_DATA, u->entry[u->here[k]], e));
    return use + 1 < u->total ? gather(l, use + 1, e) : ST_OK;
}

void units_alive(struct lowering *l) {
    for (int k = 0; k < l->units->n_here; k++)
        lower_alive(l, l->units->here[k]);
}

status_t units_finish(struct lowering *l, struct err *e) { return drop(l, NULL, e); }
