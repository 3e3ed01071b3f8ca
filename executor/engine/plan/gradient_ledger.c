#include "executor/engine/plan/gradient_ledger.h"

#include "executor/engine/graph/op.h"

#include <stdlib.h>
#include <string.h>

static void *array(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p)
        abort();
    return p;
}

void gradient_ledger_init(struct gradient_ledger *l, const struct plan *p) {
    *l = (struct gradient_ledger){ .plan = p };
    int slots = p->graph->n_slots;
    l->segments = array((size_t)(slots + p->n_buckets), sizeof *l->segments);
    for (int k = 0, b = 0; k < slots; k++) {
        int s = p->slot_order[k];
        for (int64_t at = p->slot_begin[s]; at < p->slot_end[s];) {
            while (b + 1 < p->n_buckets && p->buckets[b].end <= at)
                b++;
            int64_t end = p->buckets[b].end > at && p->buckets[b].end < p->slot_end[s] ? p->buckets[b].end
                                                                                       : p->slot_end[s];
            l->segments[l->n_segments++] = (struct segment){ .slot = s, .begin = at, .end = end };
            at = end;
        }
    }
    l->cells = array((size_t)p->gradient_buffers * (size_t)l->n_segments, sizeof *l->cells);
    l->added = array((size_t)slots, sizeof *l->added);
    l->stepped = array((size_t)slots, sizeof *l->stepped);
}

void gradient_ledger_done(struct gradient_ledger *l) {
    free(l->segments);
    free(l->cells);
    free(l->added);
    free(l->stepped);
}

static const char *name_of(const struct gradient_ledger *l, int slot) {
    const struct graph *g = l->plan->graph;
    return g->parameters[g->slots[slot].parameter].name;
}

static struct ledger_cell *cell(const struct gradient_ledger *l, int buffer, int segment) {
    return &l->cells[buffer * l->n_segments + segment];
}

static status_t check_buffer(const struct gradient_ledger *l, int buffer, struct err *e) {
    if (buffer >= 0 && buffer < l->plan->gradient_buffers)
        return ST_OK;
    return err_set(e, ST_FAILED_PRECONDITION, "gradient buffer %d does not exist", buffer);
}

static status_t check_free(const struct gradient_ledger *l, int buffer, int segment, struct err *e) {
    if (!cell(l, buffer, segment)->in_flight)
        return ST_OK;
    return err_set(e, ST_FAILED_PRECONDITION, "the gradient of %s is touched while it is being reduced",
                   name_of(l, l->segments[segment].slot));
}

static bool covers(const struct instruction *i, const struct segment *s) {
    return s->begin >= i->begin && s->end <= i->end;
}

static int all_rounds(const struct gradient_ledger *l) { return l->plan->layout.micro_batches / l->plan->layout.lanes; }

static bool is_whole(const struct gradient_ledger *l, const struct ledger_cell *c) {
    return c->lane == 0 && c->lanes == l->plan->layout.lanes && c->round == 0 && c->rounds == all_rounds(l);
}

static status_t backward_segment(struct gradient_ledger *l, const struct instruction *i, int segment, struct err *e) {
    const struct plan_layout *layout = &l->plan->layout;
    int lane = i->micro_batch % layout->lanes, round = i->micro_batch / layout->lanes;
    struct ledger_cell *c = cell(l, i->buffer, segment);
    TRY(check_free(l, i->buffer, segment, e));
    if (i->first) {
        *c = (struct ledger_cell){ .lane = lane, .lanes = 1, .round = round, .rounds = 1 };
        return ST_OK;
    }
    if (c->lanes != 1 || c->lane != lane || c->round + c->rounds != round)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the gradient of %s from micro-batch %d does not follow the one before it in lane %d",
                       name_of(l, l->segments[segment].slot), i->micro_batch, lane);
    c->rounds++;
    return ST_OK;
}

status_t gradient_ledger_backward(struct gradient_ledger *l, const struct instruction *i, struct err *e) {
    const struct op *op = &l->plan->graph->ops[l->plan->graph->reverse[i->op].op];
    TRY(check_buffer(l, i->buffer, e));
    for (int k = 0; k < OP_PARAMETERS; k++) {
        bool by_weight = op->kind->backward_weight && k == 0;
        if (op->slot[k] < 0 || by_weight != (i->kind == INSTRUCTION_BACKWARD_WEIGHT))
            continue;
        for (int s = 0; s < l->n_segments; s++)
            if (l->segments[s].slot == op->slot[k])
                TRY(backward_segment(l, i, s, e));
    }
    return ST_OK;
}

/* Adjacent halves of one tree node, of the same rounds. */
static bool is_tree_sum(const struct gradient_ledger *l, const struct ledger_cell *a, const struct ledger_cell *b) {
    int rounds = l->plan->layout.reduce == PLAN_REDUCE_STEP ? all_rounds(l) : 1;
    return a->lanes && a->lanes == b->lanes && a->lane % (2 * a->lanes) == 0 && b->lane == a->lane + a->lanes &&
           a->round == b->round && a->rounds == rounds && b->rounds == rounds;
}

/* The next round of all lanes. */
static bool is_round_sum(const struct gradient_ledger *l, const struct ledger_cell *a, const struct ledger_cell *b) {
    return l->plan->layout.reduce == PLAN_REDUCE_MICRO_BATCH && a->lanes == l->plan->layout.lanes &&
           b->lanes == a->lanes && b->rounds == 1 && b->round == a->round + a->rounds;
}

status_t gradient_ledger_add(struct gradient_ledger *l, const struct instruction *i, struct err *e) {
    TRY(check_buffer(l, i->buffer, e));
    TRY(check_buffer(l, i->source, e));
    for (int s = 0; s < l->n_segments; s++) {
        if (!covers(i, &l->segments[s]))
            continue;
        TRY(check_free(l, i->buffer, s, e));
        TRY(check_free(l, i->source, s, e));
        struct ledger_cell *a = cell(l, i->buffer, s), *b = cell(l, i->source, s);
        if (is_tree_sum(l, a, b))
            a->lanes *= 2;
        else if (is_round_sum(l, a, b))
            a->rounds++;
        else
            return err_set(e, ST_FAILED_PRECONDITION,
                           "the gradient of %s: lanes %d..%d are added to lanes %d..%d, which is no node of the tree",
                           name_of(l, l->segments[s].slot), b->lane, b->lane + b->lanes - 1, a->lane,
                           a->lane + a->lanes - 1);
        *b = (struct ledger_cell){ 0 };
    }
    return ST_OK;
}

status_t gradient_ledger_reduce(struct gradient_ledger *l, const struct instruction *i, int entry, struct err *e) {
    const struct plan_layout *layout = &l->plan->layout;
    int own = layout->lanes / layout->world_size;
    TRY(check_buffer(l, i->buffer, e));
    for (int s = 0; s < l->n_segments; s++) {
        if (!covers(i, &l->segments[s]))
            continue;
        TRY(check_free(l, i->buffer, s, e));
        struct ledger_cell *c = cell(l, i->buffer, s);
        if (c->lanes != own || c->lane != layout->rank * own ||
            (layout->reduce == PLAN_REDUCE_STEP && c->rounds != all_rounds(l)))
            return err_set(e, ST_FAILED_PRECONDITION,
                           "the gradient of %s is reduced before all of the rank's lanes are in",
                           name_of(l, l->segments[s].slot));
        c->in_flight = entry + 1;
    }
    return ST_OK;
}

void gradient_ledger_waited(struct gradient_ledger *l, int entry) {
    for (int i = 0; i < l->plan->gradient_buffers * l->n_segments; i++) {
        struct ledger_cell *c = &l->cells[i];
        if (!c->in_flight || c->in_flight > entry + 1)
            continue;
        c->lane = 0;
        c->lanes = l->plan->layout.lanes;
        c->in_flight = 0;
    }
}

static status_t check_whole(const struct gradient_ledger *l, int slot, struct err *e) {
    for (int s = 0; s < l->n_segments; s++) {
        if (l->segments[s].slot != slot)
            continue;
        TRY(check_free(l, 0, s, e));
        if (!is_whole(l, cell(l, 0, s)))
            return err_set(e, ST_FAILED_PRECONDITION, "the gradient of %s is used before the whole step is in it",
                           name_of(l, slot));
    }
    return ST_OK;
}

status_t gradient_ledger_add_slot(struct gradient_ledger *l, const struct instruction *i, struct err *e) {
    const struct graph *g = l->plan->graph;
    if (g->slots[i->op].parameter != g->slots[i->source].parameter || i->op == i->source)
        return err_set(e, ST_FAILED_PRECONDITION, "slots of two parameters are added");
    TRY(check_whole(l, i->op, e));
    TRY(check_whole(l, i->source, e));
    l->added[i->op]++;
    return ST_OK;
}

static int siblings(const struct graph *g, int owner) {
    int n = 0;
    for (int s = g->slots[owner].next_slot; s >= 0; s = g->slots[s].next_slot)
        n++;
    return n;
}

status_t gradient_ledger_norm(struct gradient_ledger *l, const struct instruction *i, struct err *e) {
    const struct graph *g = l->plan->graph;
    for (int s = 0; s < l->n_segments; s++) {
        struct segment *segment = &l->segments[s];
        if (!covers(i, segment))
            continue;
        TRY(check_free(l, 0, s, e));
        int owner = g->parameters[g->slots[segment->slot].parameter].first_slot;
        if (owner != segment->slot || l->added[owner] != siblings(g, owner) || !is_whole(l, cell(l, 0, s)) ||
            segment->normed)
            return err_set(e, ST_FAILED_PRECONDITION,
                           "the norm of %s is not taken once, over the owner's slot, after the whole step",
                           name_of(l, segment->slot));
        segment->normed = true;
    }
    return ST_OK;
}

static bool is_owner(const struct graph *g, int slot) {
    return g->parameters[g->slots[slot].parameter].first_slot == slot;
}

status_t gradient_ledger_decide(struct gradient_ledger *l, struct err *e) {
    for (int s = 0; s < l->n_segments; s++)
        if (is_owner(l->plan->graph, l->segments[s].slot) && !l->segments[s].normed)
            return err_set(e, ST_FAILED_PRECONDITION, "the norm leaves out %s", name_of(l, l->segments[s].slot));
    l->decided = true;
    return ST_OK;
}

status_t gradient_ledger_step(struct gradient_ledger *l, const struct instruction *i, struct err *e) {
    if (!l->decided || l->stepped[i->op] || !is_owner(l->plan->graph, i->op))
        return err_set(e, ST_FAILED_PRECONDITION, "%s is not stepped once, after the decision", name_of(l, i->op));
    l->stepped[i->op] = true;
    return ST_OK;
}

status_t gradient_ledger_end(const struct gradient_ledger *l, struct err *e) {
    for (int s = 0; s < l->plan->graph->n_slots; s++)
        if (is_owner(l->plan->graph, s) && !l->stepped[s])
            return err_set(e, ST_FAILED_PRECONDITION, "%s is never stepped", name_of(l, s));
    for (int i = 0; i < l->plan->gradient_buffers * l->n_segments; i++)
        if (l->cells[i].in_flight)
            return err_set(e, ST_FAILED_PRECONDITION, "the reduction of %s is never waited for",
                           name_of(l, l->segments[i % l->n_segments].slot));
    return ST_OK;
}
