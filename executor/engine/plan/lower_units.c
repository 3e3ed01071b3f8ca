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

struct unit_lowering *units_open(struct lowering *l) {
    const struct graph *g = l->p->graph;
    struct unit_lowering *u = plan_array(1, sizeof *u);
    l->units = u;
    u->uses = plan_array(2 * g->n_blocks, sizeof *u->uses);
    u->needed = plan_array(2 * g->n_blocks * l->p->n_buckets, sizeof *u->needed);
    u->entry = plan_array(l->p->n_buckets, sizeof *u->entry);
    u->here = plan_array(l->p->n_buckets, sizeof *u->here);
    for (int b = 0; b < l->p->n_buckets; b++)
        u->entry[b] = -1;
    note_uses(l, PHASE_FORWARD);
    note_uses(l, PHASE_BACKWARD);
    u->total = u->n_uses * l->n;
    u->now = -1;
    return u;
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

static void gather(struct lowering *l, int use) {
    struct unit_lowering *u = l->units;
    const bool *row = needed(l, use);
    for (int b = 0; b < l->p->n_buckets; b++) {
        if (!row[b] || u->entry[b] >= 0)
            continue;
        struct instruction *i = lower_post(l, QUEUE_DATA, INSTRUCTION_GATHER);
        i->entry = b;
        i->begin = l->p->buckets[b].begin;
        i->end = l->p->buckets[b].end;
        i->group = GROUP_DATA;
        u->entry[b] = l->p->queue[QUEUE_DATA].n - 1;
        u->here[u->n_here++] = b;
    }
}

static void drop(struct lowering *l, const bool *still) {
    struct unit_lowering *u = l->units;
    int n = 0;
    for (int k = 0; k < u->n_here; k++) {
        int b = u->here[k];
        if (still && still[b]) {
            u->here[n++] = b;
            continue;
        }
        plan_emit(&l->p->queue[QUEUE_COMPUTE], INSTRUCTION_DROP)->entry = b;
        u->entry[b] = -1;
    }
    u->n_here = n;
}

void units_before(struct lowering *l, int block) {
    struct unit_lowering *u = l->units;
    const bool backward = l->at >= l->b->programs[PHASE_FORWARD][0].n;
    if (u->now >= 0) {
        const struct use *now = &u->uses[u->now % u->n_uses];
        if (now->block == block && now->backward == backward)
            return;
    }
    int use = ++u->now;
    drop(l, needed(l, use));
    gather(l, use);
    for (int k = 0; k < u->n_here; k++)
        lower_wait(l, QUEUE_DATA, u->entry[u->here[k]]);
    if (use + 1 < u->total)
        gather(l, use + 1);
}

void units_alive(struct lowering *l) {
    for (int k = 0; k < l->units->n_here; k++)
        lower_alive(l, l->units->here[k]);
}

void units_finish(struct lowering *l) { drop(l, NULL); }
