/* The order of a step under data parallelism with accumulation: lane after lane, each lane's micro-batches ascending;
 * as the last one of a lane finishes a bucket, the lanes that are whole are added (a binary counter walks the tree),
 * and when the rank's last lane is in, the bucket leaves on the channel while the backward pass goes on. */
#include "executor/engine/plan/plan.h"

#include "executor/engine/graph/op.h"

#include <stdlib.h>

static struct instruction *emit(struct instruction_list *list, enum instruction_kind kind) {
    if (!(list->n & (list->n - 1))) {
        struct instruction *bigger = reallocarray(list->items, list->n ? (size_t)list->n * 2 : 1, sizeof *bigger);
        if (!bigger)
            abort();
        list->items = bigger;
    }
    struct instruction *i = &list->items[list->n++];
    *i = (struct instruction){ .kind = kind, .op = -1, .micro_batch = -1, .entry = -1, .peer = -1 };
    return i;
}

/* What happens to a lane's gradients when a bucket of its last micro-batch is complete. */
struct lane_end {
    int buffer;      /* the lane's gradients are here */
    int adds;        /* whole lanes below it on the stack that it is added to, one after the other */
    bool reduce;     /* the tree of the rank is complete then */
    bool norm;       /* and nothing more will be added to it: norms can be taken while it is in cache */
    bool accumulate; /* and it is a later round, to be added to buffer 0 */
};

static bool has_siblings(const struct graph *g, int slot) {
    return g->slots[g->parameters[g->slots[slot].parameter].first_slot].next_slot >= 0;
}

/* NORM over [begin, end) without the slots that still have to be added to one another. */
static void emit_norms(struct plan *p, int64_t begin, int64_t end) {
    struct instruction *last = NULL;
    for (int k = 0; k < p->graph->n_slots; k++) {
        int s = p->slot_order[k];
        int64_t a = p->slot_begin[s] > begin ? p->slot_begin[s] : begin,
                z = p->slot_end[s] < end ? p->slot_end[s] : end;
        if (a >= z || has_siblings(p->graph, s))
            continue;
        if (!last || last->end != a) {
            last = emit(&p->compute, INSTRUCTION_NORM);
            last->begin = a;
        }
        last->end = z;
    }
}

static void emit_add(struct plan *p, const struct plan_bucket *b, int buffer, int source) {
    struct instruction *i = emit(&p->compute, INSTRUCTION_ADD);
    i->buffer = buffer;
    i->source = source;
    i->begin = b->begin;
    i->end = b->end;
}

static void emit_wait(struct plan *p, int entry) { emit(&p->compute, INSTRUCTION_WAIT)->entry = entry; }

static void finish_bucket(struct plan *p, int bucket, const struct lane_end *end) {
    const struct plan_bucket *b = &p->buckets[bucket];
    int buffer = end->buffer;
    for (int i = 0; i < end->adds; i++, buffer--)
        emit_add(p, b, buffer - 1, buffer);
    if (end->reduce && p->layout.world_size > 1) {
        struct instruction *r = emit(&p->channel, INSTRUCTION_REDUCE);
        r->entry = bucket;
        r->buffer = buffer;
        r->begin = b->begin;
        r->end = b->end;
        r->after = p->compute.n;
    } else {
        if (end->accumulate)
            emit_add(p, b, 0, buffer);
        if (end->norm)
            emit_norms(p, b->begin, b->end);
    }
}

static void emit_forward(struct plan *p, int micro_batch) {
    emit(&p->compute, INSTRUCTION_LOAD)->micro_batch = micro_batch;
    for (int op = 0; op < p->graph->n_ops; op++) {
        if (p->layout.kind == PLAN_SAMPLE && p->graph->ops[op].out[0] == p->graph->losses)
            continue;
        struct instruction *i = emit(&p->compute, INSTRUCTION_FORWARD);
        i->op = op;
        i->micro_batch = micro_batch;
    }
}

static void emit_exchange(struct plan *p) {
    if (p->layout.world_size > 1)
        emit(&p->channel, INSTRUCTION_EXCHANGE)->after = p->compute.n;
}

static void emit_reverse(struct plan *p, int r, int micro_batch, int buffer, bool first) {
    const struct op_kind *kind = p->graph->ops[p->graph->reverse[r].op].kind;
    struct instruction *i;
    if (!kind->gradient_in_forward) {
        i = emit(&p->compute, INSTRUCTION_BACKWARD_INPUT);
        *i = (struct instruction){ .kind = i->kind,
                                   .op = r,
                                   .micro_batch = micro_batch,
                                   .buffer = buffer,
                                   .entry = -1,
                                   .peer = -1,
                                   .first = first };
    }
    if (kind->backward_weight) {
        i = emit(&p->compute, INSTRUCTION_BACKWARD_WEIGHT);
        *i = (struct instruction){ .kind = i->kind,
                                   .op = r,
                                   .micro_batch = micro_batch,
                                   .buffer = buffer,
                                   .entry = -1,
                                   .peer = -1,
                                   .first = first };
    }
}

/* One forward and backward; end: NULL when more micro-batches of the lane follow. */
static void emit_micro_batch(struct plan *p, int micro_batch, int buffer, bool first, bool last_of_step,
                             const struct lane_end *end) {
    emit_forward(p, micro_batch);
    if (last_of_step)
        emit_exchange(p);
    int bucket = 0;
    for (int r = 0; r < p->graph->n_reverse; r++) {
        emit_reverse(p, r, micro_batch, buffer, first);
        for (; end && bucket < p->n_buckets && p->buckets[bucket].ready == r; bucket++)
            finish_bucket(p, bucket, end);
    }
}

static void note_buffers(struct plan *p, int buffer) {
    if (p->gradient_buffers <= buffer)
        p->gradient_buffers = buffer + 1;
}

/* reduce: step. A lane folds all its micro-batches, then the tree. */
static void schedule_step(struct plan *p) {
    const struct plan_layout *l = &p->layout;
    int own = l->lanes / l->world_size, rounds = l->micro_batches / l->lanes;
    for (int lane = 0; lane < own; lane++) {
        int buffer = __builtin_popcount((unsigned)lane);
        note_buffers(p, buffer);
        struct lane_end end = {
            .buffer = buffer, .adds = __builtin_ctz(~(unsigned)lane), .reduce = lane == own - 1, .norm = lane == own - 1
        };
        for (int round = 0; round < rounds; round++) {
            bool last = round == rounds - 1;
            emit_micro_batch(p, round * l->lanes + l->rank * own + lane, buffer, round == 0, last && lane == own - 1,
                             last ? &end : NULL);
        }
    }
}

/* reduce: micro_batch. Each round is one tree over all lanes and ranks; later rounds are added to the first one. */
static void schedule_micro_batch(struct plan *p) {
    const struct plan_layout *l = &p->layout;
    int own = l->lanes / l->world_size, rounds = l->micro_batches / l->lanes;
    for (int round = 0; round < rounds; round++) {
        int base = round ? 1 : 0;
        for (int lane = 0; lane < own; lane++) {
            int buffer = base + __builtin_popcount((unsigned)lane);
            note_buffers(p, buffer);
            struct lane_end end = { .buffer = buffer,
                                    .adds = __builtin_ctz(~(unsigned)lane),
                                    .reduce = lane == own - 1,
                                    .norm = lane == own - 1 && round == rounds - 1,
                                    .accumulate = lane == own - 1 && round > 0 };
            emit_micro_batch(p, round * l->lanes + l->rank * own + lane, buffer, true,
                             round == rounds - 1 && lane == own - 1, &end);
        }
        if (l->world_size == 1 || round == 0)
            continue;
        for (int b = 0; b < p->n_buckets; b++) {
            emit_wait(p, p->channel.n - p->n_buckets + b);
            emit_add(p, &p->buckets[b], 0, 1);
        }
    }
}

static void emit_slot_sums(struct plan *p) {
    const struct graph *g = p->graph;
    for (int i = 0; i < g->n_parameters; i++) {
        int owner = g->parameters[i].first_slot;
        if (g->slots[owner].next_slot < 0)
            continue;
        for (int s = g->slots[owner].next_slot; s >= 0; s = g->slots[s].next_slot) {
            struct instruction *add = emit(&p->compute, INSTRUCTION_ADD_SLOT);
            add->op = owner;
            add->source = s;
        }
        struct instruction *norm = emit(&p->compute, INSTRUCTION_NORM);
        norm->begin = p->slot_begin[owner];
        norm->end = p->slot_end[owner];
    }
}

static void schedule_optimizer(struct plan *p) {
    if (p->layout.world_size > 1)
        for (int b = 0; b < p->n_buckets; b++) {
            emit_wait(p, p->channel.n - p->n_buckets + b);
            emit_norms(p, p->buckets[b].begin, p->buckets[b].end);
        }
    emit_slot_sums(p);
    emit(&p->compute, INSTRUCTION_DECIDE);
    for (int k = 0; k < p->graph->n_slots; k++) {
        int s = p->slot_order[k];
        if (p->graph->parameters[p->graph->slots[s].parameter].first_slot == s)
            emit(&p->compute, INSTRUCTION_STEP)->op = s;
    }
}

static void schedule_forward_only(struct plan *p) {
    for (int k = p->layout.rank; k < p->layout.micro_batches; k += p->layout.world_size)
        emit_forward(p, k);
    if (p->layout.kind == PLAN_SAMPLE)
        return;
    emit_exchange(p);
    if (p->layout.world_size > 1)
        emit_wait(p, 0);
}

status_t plan_schedule(struct plan *p, struct err *e) {
    (void)e;
    if (p->layout.kind != PLAN_TRAIN) {
        schedule_forward_only(p);
        return ST_OK;
    }
    if (p->layout.reduce == PLAN_REDUCE_STEP)
        schedule_step(p);
    else
        schedule_micro_batch(p);
    schedule_optimizer(p);
    return ST_OK;
}
