/* ZeRO 3: weights are gathered one block before the ops that read them, and dropped after them. One micro-batch is a
 * list of passes over blocks, which repeats. When a pass begins, buckets that it does not need are dropped, its own are
 * waited for, and those of the next pass are posted. */
#include "engine/plan/build/lower.h"

#include "engine/graph/op.h"

#include <stdlib.h>

/* One pass over a block: consecutive instructions of a block. `passes` holds those of one micro-batch, which repeat. */
struct block_pass {
    int block;
    bool backward;
};

struct gather_lowering {
    struct block_pass *passes;
    int n_passes;
    int total, now;    /* over all micro-batches; now = -1 before the first */
    bool *needed;      /* [2][n_blocks][n_buckets]: forward, backward */
    int *entry;        /* [n_buckets] the GATHER's entry; -1 = not gathered */
    int *here, n_here; /* buckets with entry >= 0 */
};

static bool *needed(const struct lowering *l, int pass) {
    const struct block_pass *u = &l->gathers->passes[pass % l->gathers->n_passes];
    size_t row = (size_t)(u->backward ? l->p->graph->n_blocks : 0) + (size_t)u->block;
    return l->gathers->needed + row * (size_t)l->p->n_buckets;
}

static void note_passes(struct lowering *l, enum phase_kind kind) {
    const struct graph *g = l->p->graph;
    const struct program *program = &l->b->programs[kind][0];
    struct gather_lowering *u = l->gathers;
    for (int k = 0; k < program->n; k++) {
        const struct instruction *i = &program->items[k];
        if (i->op < 0)
            continue;
        const bool forward = i->kind == INSTRUCTION_FORWARD || i->kind == INSTRUCTION_RECOMPUTE;
        const struct op *op = &g->ops[forward ? i->op : g->reverse[i->op].op];
        const bool backward = kind == PHASE_BACKWARD;
        if (!u->n_passes || u->passes[u->n_passes - 1].block != op->block ||
            u->passes[u->n_passes - 1].backward != backward)
            u->passes[u->n_passes++] = (struct block_pass){ .block = op->block, .backward = backward };
        /* The backward pass of an op without an input gradient reads no weights: embeddings. */
        if (!forward && !op->kind->differentiable)
            continue;
        bool *row = needed(l, u->n_passes - 1);
        for (int s = 0; s < OP_PARAMETERS; s++)
            if (op->use[s] >= 0)
                row[plan_bucket_at(l->p, l->p->use_begin[g->parameters[g->uses[op->use[s]].parameter].first_use])] =
                    true;
    }
}

status_t gathers_open(struct lowering *l, struct err *e) {
    const struct graph *g = l->p->graph;
    TRY(array_new(&l->gathers, 1, e));
    struct gather_lowering *u = l->gathers;
    TRY(array_new(&u->passes, 2 * g->n_blocks, e));
    TRY(array_new(&u->needed, 2 * g->n_blocks * l->p->n_buckets, e));
    TRY(array_new(&u->entry, l->p->n_buckets, e));
    TRY(array_new(&u->here, l->p->n_buckets, e));
    for (int b = 0; b < l->p->n_buckets; b++)
        u->entry[b] = -1;
    note_passes(l, PHASE_FORWARD);
    note_passes(l, PHASE_BACKWARD);
    u->total = u->n_passes * l->n;
    u->now = -1;
    return ST_OK;
}

struct gather_lowering *gathers_close(struct gather_lowering *u) {
    if (!u)
        return NULL;
    free(u->passes);
    free(u->needed);
    free(u->entry);
    free(u->here);
    free(u);
    return NULL;
}

static status_t gather(struct lowering *l, int pass, struct err *e) {
    struct gather_lowering *u = l->gathers;
    const bool *row = needed(l, pass);
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
    struct gather_lowering *u = l->gathers;
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

status_t gathers_before(struct lowering *l, int block, struct err *e) {
    struct gather_lowering *u = l->gathers;
    const bool backward = l->at >= l->b->programs[PHASE_FORWARD][0].n;
    if (u->now >= 0) {
        const struct block_pass *now = &u->passes[u->now % u->n_passes];
        if (now->block == block && now->backward == backward)
            return ST_OK;
    }
    int pass = ++u->now;
    TRY(drop(l, needed(l, pass), e));
    TRY(gather(l, pass, e));
    for (int k = 0; k < u->n_here; k++)
        TRY(lower_wait(l, QUEUE_DATA, u->entry[u->here[k]], e));
    return pass + 1 < u->total ? gather(l, pass + 1, e) : ST_OK;
}

void gathers_alive(struct lowering *l) {
    for (int k = 0; k < l->gathers->n_here; k++)
        lower_alive(l, l->gathers->here[k]);
}

status_t gathers_finish(struct lowering *l, struct err *e) { return drop(l, NULL, e); }
