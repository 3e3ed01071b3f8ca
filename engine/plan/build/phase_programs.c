/* The instructions of one phase of each kind and virtual stage, and what the backward pass recomputes.
 *
 * Every activation is stored or recomputed. `none` stores all. `block` stores the inputs of blocks, and all of the
 * model's last block if its backward pass follows at once. `selective` stores all except the outputs of ops that ask
 * for it (op_kind.selective).
 *
 * Recompute is on demand. Before a reverse op, the ops run again whose outputs it reads and which are neither stored
 * nor recomputed yet, and before them the ops that those need.
 *
 * Zero-bubble schedules delay BACKWARD_WEIGHT. If a reverse op in between overwrites the gradient that it reads, the
 * gradient is copied first (COPY_GRADIENT). */
#include "engine/plan/build/building.h"

#include "engine/graph/op.h"
#include "engine/plan/build/stage_cut.h"

#include <stdlib.h>
#include <string.h>

struct writing {
    struct building *b;
    struct plan *p;
    const struct graph *g;
    int *producer;   /* [n_tensors] op whose forward makes it; -1 */
    bool *available; /* [n_tensors] stored, or recomputed already */
    bool *wanted;    /* [n_ops] must be recomputed now */
    int *overwrites; /* [n_tensors] */
    int virtual_stage;
};

static status_t append(struct program *to, enum instruction_kind kind, int op, int virtual_stage, struct err *e) {
    TRY(array_grow(&to->items, to->n, e));
    to->items[to->n++] = (struct instruction){
        .kind = kind, .op = op, .virtual_stage = virtual_stage, .entry = -1, .peer = -1
    };
    return ST_OK;
}

static void find_producers(struct writing *w) {
    const struct graph *g = w->g;
    for (int t = 0; t < g->n_tensors; t++)
        w->producer[t] = -1;
    for (int i = 0; i < g->n_ops; i++)
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (g->ops[i].out[k] >= 0)
                w->producer[g->ops[i].out[k]] = i;
    for (int r = 0; r < g->n_reverse; r++)
        if (g->ops[g->reverse[r].op].kind->gradient_in_forward)
            for (int k = 0; k < OP_INPUTS; k++)
                if (g->reverse[r].d_in[k] >= 0)
                    w->producer[g->reverse[r].d_in[k]] = g->reverse[r].op;
}

/* --- what is stored ---*/

/* Every backward phase of the model's last virtual stage follows its forward phase. */
static bool turns_at_once(const struct building *b) {
    const struct plan *p = b->plan;
    int last = p->layout.virtual_stages - 1;
    if (plan_stage(&p->layout) != p->layout.stages - 1)
        return false;
    for (int i = 0; i < b->phases.n; i++) {
        const struct phase *f = &b->phases.items[i];
        if (f->kind == PHASE_FORWARD && f->virtual_stage == last &&
            (i + 1 == b->phases.n || f[1].kind != PHASE_BACKWARD || f[1].virtual_stage != last || f[1].q != f->q))
            return false;
    }
    return true;
}

/* No op that writes these bytes may run again: its outputs are stored, and so is everything that works in their place.
 */
static void store_all(struct writing *w, int storage) {
    const struct graph *g = w->g;
    for (int i = 0; i < g->n_ops; i++) {
        const int *out = g->ops[i].out;
        bool writes = false;
        for (int k = 0; k < OP_OUTPUTS; k++)
            writes |= out[k] >= 0 && w->p->storage[out[k]] == storage;
        for (int k = 0; k < OP_OUTPUTS && writes; k++)
            if (out[k] >= 0 && !w->b->stored[out[k]]) {
                w->b->stored[out[k]] = true;
                store_all(w, w->p->storage[out[k]]);
            }
    }
}

/* A delayed weight pass reads its input as it was in the forward pass. */
static void store_for_weights(struct writing *w) {
    const struct graph *g = w->g;
    for (int r = 0; r < g->n_reverse && w->b->splits_weight; r++) {
        const struct op *op = &g->ops[g->reverse[r].op];
        if (op->kind->backward_weight && op->in[0] >= 0 && w->b->stored[op->in[0]])
            store_all(w, w->p->storage[op->in[0]]);
    }
}

/* Whether a later block reads the activation. */
static bool is_boundary(const struct writing *w, int t) {
    return w->g->tensors[t].role == TENSOR_ACTIVATION && w->b->last_block[t] > w->g->tensors[t].block;
}

static void choose_stored(struct writing *w) {
    const struct graph *g = w->g;
    const struct plan *p = w->p;
    const bool train = p->layout.kind == PLAN_TRAIN, turns = train && turns_at_once(w->b);
    for (int t = 0; t < g->n_tensors; t++) {
        int op = w->producer[t];
        bool stored = true;
        if (train && op >= 0 && p->layout.recompute == RECOMPUTE_BLOCK)
            stored = turns && g->ops[op].block == g->n_blocks - 1;
        else if (train && op >= 0 && p->layout.recompute == RECOMPUTE_SELECTIVE)
            stored = !g->ops[op].kind->selective;
        w->b->stored[t] = stored;
    }
    for (int t = 0; t < g->n_tensors; t++)
        if (is_boundary(w, t))
            w->b->stored[t] = true;
    /* An op that works in place on a boundary tensor cannot run again: its input is overwritten. */
    for (int u = 0; u < g->n_tensors; u++)
        for (int t = 0; t < g->n_tensors && is_boundary(w, u); t++)
            if (w->producer[t] >= 0 && p->storage[t] == p->storage[u] &&
                stage_crosses(g, w->b->last_block, u, g->ops[w->producer[t]].block))
                w->b->stored[t] = true;
    store_for_weights(w);
}

/* --- recompute ---*/

static void want(struct writing *w, int tensor) {
    int op = tensor >= 0 ? w->producer[tensor] : -1;
    if (op < 0 || w->available[tensor] || w->wanted[op])
        return;
    w->wanted[op] = true;
    for (int k = 0; k < OP_INPUTS; k++)
        want(w, w->g->ops[op].in[k]);
}

static status_t recompute_for(struct writing *w, int r, struct program *to, struct err *e) {
    const struct graph *g = w->g;
    const struct reverse_op *reverse = &g->reverse[r];
    const struct op *op = &g->ops[reverse->op];
    if (w->p->layout.recompute == RECOMPUTE_NONE)
        return ST_OK;
    for (int k = 0; k < OP_INPUTS; k++)
        if (op->kind->saved_in & IN(k))
            want(w, op->in[k]);
    for (int k = 0; k < OP_OUTPUTS; k++) {
        if (op->kind->saved_out & OUT(k))
            want(w, op->out[k]);
        want(w, reverse->d_out[k]);
    }
    const struct block *block = &g->blocks[op->block];
    for (int i = block->first_op; i < block->first_op + block->n_ops; i++) {
        if (!w->wanted[i])
            continue;
        TRY(append(to, INSTRUCTION_RECOMPUTE, i, w->virtual_stage, e));
        w->wanted[i] = false;
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (g->ops[i].out[k] >= 0)
                w->available[g->ops[i].out[k]] = true;
        for (int q = block->first_reverse; q < block->first_reverse + block->n_reverse; q++)
            for (int k = 0; g->reverse[q].op == i && g->ops[i].kind->gradient_in_forward && k < OP_INPUTS; k++)
                if (g->reverse[q].d_in[k] >= 0)
                    w->available[g->reverse[q].d_in[k]] = true;
    }
    return ST_OK;
}

/* --- programs ---*/

static bool reads_batch(const struct writing *w, int virtual_stage) {
    const struct graph *g = w->g;
    for (int i = 0; i < g->n_ops; i++)
        for (int k = 0; k < OP_INPUTS; k++)
            if (w->p->block_virtual_stage[g->ops[i].block] == virtual_stage && g->ops[i].in[k] >= 0 &&
                w->p->loaded[g->ops[i].in[k]])
                return true;
    return false;
}

/* The first virtual stage that reads a batch input loads those of all virtual stages of the rank. */
static status_t write_load(struct writing *w, struct err *e) {
    for (int c = 0; c < w->virtual_stage; c++)
        if (reads_batch(w, c))
            return ST_OK;
    if (!reads_batch(w, w->virtual_stage))
        return ST_OK;
    return append(&w->b->programs[PHASE_FORWARD][w->virtual_stage], INSTRUCTION_LOAD, -1, w->virtual_stage, e);
}

static status_t write_forward(struct writing *w, struct err *e) {
    const struct graph *g = w->g;
    const struct plan_virtual_stage *c = &w->p->virtual_stages[w->virtual_stage];
    struct program *to = &w->b->programs[PHASE_FORWARD][w->virtual_stage];
    TRY(write_load(w, e));
    for (int k = c->first_block; k < c->first_block + c->n_blocks; k++)
        for (int i = g->blocks[k].first_op; i < g->blocks[k].first_op + g->blocks[k].n_ops; i++) {
            if (w->p->layout.kind == PLAN_SAMPLE && g->ops[i].kind->gradient_in_forward)
                continue; /* a loss */
            TRY(append(to, INSTRUCTION_FORWARD, i, w->virtual_stage, e));
        }
    return ST_OK;
}

/* w->overwrites[storage] = the last reverse op of the virtual stage that changes its bytes. */
static void find_overwrites(struct writing *w, int begin, int end) {
    for (int t = 0; t < w->g->n_tensors; t++)
        w->overwrites[t] = -1;
    for (int r = begin; r < end; r++) {
        struct instruction i = { .kind = INSTRUCTION_BACKWARD_INPUT, .op = r };
        struct tensor_access a;
        if (w->g->ops[w->g->reverse[r].op].kind->gradient_in_forward)
            continue;
        plan_access(w->p, &i, &a);
        for (int k = 0; k < a.n_writes; k++)
            w->overwrites[w->p->storage[a.writes[k]]] = r;
    }
}

static status_t copy_for_weight(struct writing *w, int r, struct program *to, struct err *e) {
    struct plan *p = w->p;
    TRY(array_grow(&p->gradient_copy_of, p->n_tensors - w->g->n_tensors, e));
    p->gradient_copy_of[p->n_tensors - w->g->n_tensors] = r;
    p->gradient_copy[r] = p->n_tensors++;
    return append(to, INSTRUCTION_COPY_GRADIENT, r, w->virtual_stage, e);
}

/* An instruction has one flag for overwrite or add, so all uses that an op writes must agree. */
static status_t check_writer(const struct writing *w, const struct instruction *i, struct err *e) {
    int uses[OP_PARAMETERS];
    bool first[OP_PARAMETERS];
    int n = plan_written_uses(w->p, i, uses, first);
    for (int k = 1; k < n; k++)
        if (first[k] != first[0])
            return err_set(e, ST_INTERNAL, "op %s: some of its parameters are shared with an earlier op, some are not",
                           w->g->ops[w->g->reverse[i->op].op].name);
    return ST_OK;
}

static status_t append_writer(struct writing *w, struct program *to, enum instruction_kind kind, int r, struct err *e) {
    TRY(append(to, kind, r, w->virtual_stage, e));
    return check_writer(w, &to->items[to->n - 1], e);
}

static status_t write_backward(struct writing *w, struct err *e) {
    const struct graph *g = w->g;
    const struct plan_virtual_stage *c = &w->p->virtual_stages[w->virtual_stage];
    const bool split = w->b->splits_weight;
    struct program *to = &w->b->programs[PHASE_BACKWARD][w->virtual_stage];
    struct program *later = &w->b->programs[split ? PHASE_WEIGHT : PHASE_BACKWARD][w->virtual_stage];
    int last = c->first_block + c->n_blocks - 1;
    if (split)
        find_overwrites(w, g->blocks[last].first_reverse,
                        g->blocks[c->first_block].first_reverse + g->blocks[c->first_block].n_reverse);
    for (int k = last; k >= c->first_block; k--)
        for (int r = g->blocks[k].first_reverse; r < g->blocks[k].first_reverse + g->blocks[k].n_reverse; r++) {
            const struct op_kind *kind = g->ops[g->reverse[r].op].kind;
            TRY(recompute_for(w, r, to, e));
            if (!kind->gradient_in_forward)
                TRY(append_writer(w, to, INSTRUCTION_BACKWARD_INPUT, r, e));
            if (!kind->backward_weight)
                continue;
            if (split && w->overwrites[w->p->storage[g->reverse[r].d_out[0]]] > r)
                TRY(copy_for_weight(w, r, to, e));
            TRY(append_writer(w, later, INSTRUCTION_BACKWARD_WEIGHT, r, e));
        }
    return ST_OK;
}

status_t plan_write_programs(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    const struct graph *g = p->graph;
    CLEANUP(freep) int *producer = NULL;
    TRY(array_new(&producer, g->n_tensors, e));
    CLEANUP(freep) bool *available = NULL;
    TRY(array_new(&available, g->n_tensors, e));
    CLEANUP(freep) bool *wanted = NULL;
    TRY(array_new(&wanted, g->n_ops, e));
    CLEANUP(freep) int *overwrites = NULL;
    TRY(array_new(&overwrites, g->n_tensors, e));
    struct writing w = {
        .b = b, .p = p, .g = g, .producer = producer, .available = available, .wanted = wanted, .overwrites = overwrites
    };
    find_producers(&w);
    choose_stored(&w);
    memcpy(available, b->stored, (size_t)g->n_tensors * sizeof *available);
    for (int c = 0; c < p->layout.virtual_stages && p->layout.kind != PLAN_AVERAGE; c++) {
        w.virtual_stage = c;
        TRY(write_forward(&w, e));
    }
    for (int c = p->layout.virtual_stages - 1; c >= 0 && p->layout.kind == PLAN_TRAIN; c--) {
        w.virtual_stage = c;
        TRY(write_backward(&w, e));
    }
    return ST_OK;
}
