#include "executor/engine/plan/lower.h"

#include "executor/engine/graph/op.h"

#include <stdlib.h>

struct instruction plan_instruction(enum instruction_kind kind) {
    return (struct instruction){
        .kind = kind, .op = -1, .micro_batch = -1, .flight = -1, .chunk = -1, .entry = -1, .peer = -1
    };
}

status_t plan_emit(struct instruction_list *list, struct instruction i, struct err *e) {
    TRY(array_grow(&list->items, list->n, e));
    list->items[list->n++] = i;
    return ST_OK;
}

status_t lower_wait(struct lowering *l, enum plan_queue queue, int entry, struct err *e) {
    if (queue == QUEUE_DATA) {
        if (entry < l->data_waited)
            return ST_OK;
        l->data_waited = entry + 1;
    }
    struct instruction i = plan_instruction(INSTRUCTION_WAIT);
    i.queue = queue;
    i.entry = entry;
    return plan_emit(&l->p->queue[QUEUE_COMPUTE], i, e);
}

status_t lower_post(struct lowering *l, enum plan_queue queue, struct instruction i, struct err *e) {
    i.after = l->p->queue[QUEUE_COMPUTE].n;
    return plan_emit(&l->p->queue[queue], i, e);
}

status_t lower_gather(struct lowering *l, int bucket, struct err *e) {
    struct instruction i = plan_instruction(INSTRUCTION_GATHER);
    i.entry = bucket;
    i.begin = l->p->buckets[bucket].begin;
    i.end = l->p->buckets[bucket].end;
    i.group = GROUP_DATA;
    return lower_post(l, QUEUE_DATA, i, e);
}

void lower_alive(struct lowering *l, int object) {
    l->b->alive[(size_t)object * (size_t)l->b->words + (size_t)(l->at / 64)] |= UINT64_C(1) << (l->at % 64);
}

/* --- boundary tensors ---*/

static enum plan_queue queue_of(enum way way) { return way == WAY_FORWARD ? QUEUE_ACTIVATIONS : QUEUE_GRADIENTS; }

static int incoming(const struct plan_chunk *c, enum way way) { return way == WAY_FORWARD ? c->input : c->d_output; }
static int outgoing(const struct plan_chunk *c, enum way way) { return way == WAY_FORWARD ? c->output : c->d_input; }

/* The rank of this column that holds a chunk of the model. */
static int rank_of(const struct plan *p, int number) {
    return number % p->layout.stages * p->layout.data + plan_data_rank(&p->layout);
}

static struct instruction transfer(const struct lowering *l, enum instruction_kind kind, const struct plan_chunk *c,
                                   int tensor, int q, int peer) {
    struct instruction i = plan_instruction(kind);
    i.what = WHAT_TENSOR;
    i.op = tensor;
    i.chunk = (int)(c - l->p->chunks);
    i.micro_batch = plan_micro_batch(&l->p->layout, plan_data_rank(&l->p->layout), q);
    i.flight = q;
    i.peer = rank_of(l->p, peer);
    return i;
}

/* The bytes of micro-batch q's copy are needed again: what was sent from them must be gone. */
static status_t wait_sent(struct lowering *l, int chunk, enum way way, int q, struct err *e) {
    int *entry = &l->sent[way][chunk * l->n + q];
    if (*entry < 0)
        return ST_OK;
    TRY(lower_wait(l, queue_of(way), *entry, e));
    *entry = -1;
    return ST_OK;
}

static int copies_of(const struct lowering *l, int tensor) {
    return l->p->tensors[LIFE_FORWARD][tensor].copies; /* boundary tensors have one life */
}

static status_t free_copy(struct lowering *l, int chunk, int tensor, int q, struct err *e) {
    int before = q - copies_of(l, tensor);
    if (before < 0)
        return ST_OK;
    for (int way = 0; way < WAYS; way++) {
        int out = outgoing(&l->p->chunks[chunk], (enum way)way);
        if (out >= 0 && l->p->storage[out] == l->p->storage[tensor])
            TRY(wait_sent(l, chunk, (enum way)way, before, e));
    }
    return ST_OK;
}

static bool has_way(const struct phase *f, enum way *way) {
    *way = f->kind == PHASE_FORWARD ? WAY_FORWARD : WAY_BACKWARD;
    return f->kind != PHASE_WEIGHT;
}

static status_t post_receive(struct lowering *l, const struct phase *f, struct err *e) {
    enum way way;
    const struct plan_chunk *c = &l->p->chunks[f->chunk];
    if (!has_way(f, &way) || incoming(c, way) < 0 || l->received[way][f->chunk * l->n + f->q] >= 0)
        return ST_OK;
    const int tensor = incoming(c, way), from = c->number + (way == WAY_FORWARD ? -1 : 1);
    TRY(free_copy(l, f->chunk, tensor, f->q, e));
    TRY(lower_post(l, queue_of(way), transfer(l, INSTRUCTION_RECV, c, tensor, f->q, from), e));
    l->received[way][f->chunk * l->n + f->q] = l->p->queue[queue_of(way)].n - 1;
    return ST_OK;
}

static status_t send(struct lowering *l, const struct phase *f, struct err *e) {
    enum way way;
    const struct plan_chunk *c = &l->p->chunks[f->chunk];
    if (!has_way(f, &way) || outgoing(c, way) < 0)
        return ST_OK;
    const int to = c->number + (way == WAY_FORWARD ? 1 : -1);
    TRY(lower_post(l, queue_of(way), transfer(l, INSTRUCTION_SEND, c, outgoing(c, way), f->q, to), e));
    l->sent[way][f->chunk * l->n + f->q] = l->p->queue[queue_of(way)].n - 1;
    return ST_OK;
}

/* --- phases ---*/

static int block_of(const struct plan *p, const struct instruction *i) {
    const struct graph *g = p->graph;
    if (i->op < 0)
        return -1;
    bool forward = i->kind == INSTRUCTION_FORWARD || i->kind == INSTRUCTION_RECOMPUTE;
    return g->ops[forward ? i->op : g->reverse[i->op].op].block;
}

static status_t run_program(struct lowering *l, const struct phase *f, struct err *e) {
    struct plan *p = l->p;
    const struct program *program = &l->b->programs[f->kind][f->chunk];
    const int micro_batch = plan_micro_batch(&p->layout, plan_data_rank(&p->layout), f->q);
    l->at = f->kind == PHASE_FORWARD ? 0 : l->b->programs[PHASE_FORWARD][0].n;
    for (int k = 0; k < program->n; k++, l->at++) {
        struct instruction i = program->items[k];
        i.micro_batch = micro_batch;
        i.flight = f->q;
        const bool writes = i.kind == INSTRUCTION_BACKWARD_INPUT || i.kind == INSTRUCTION_BACKWARD_WEIGHT;
        if (l->units && i.op >= 0)
            TRY(units_before(l, block_of(p, &i), e));
        if (p->staged)
            gradients_alive(l); /* what a gather that starts here must not fall on, though it is settled next */
        if (writes)
            TRY(gradients_before(l, &i, e));
        if (l->units)
            units_alive(l);
        if (p->staged)
            gradients_alive(l);
        TRY(plan_emit(&p->queue[QUEUE_COMPUTE], i, e));
        if (writes)
            TRY(gradients_after(l, &i, e));
    }
    return ST_OK;
}

static status_t exchange(struct lowering *l, struct err *e) {
    if (l->p->layout.world_size == 1)
        return ST_OK;
    struct instruction i = plan_instruction(INSTRUCTION_EXCHANGE);
    i.group = GROUP_WORLD;
    TRY(lower_post(l, QUEUE_DATA, i, e));
    l->exchange = l->p->queue[QUEUE_DATA].n - 1;
    return ST_OK;
}

/* A receive is posted a phase ahead, so that it travels while that phase computes. */
static status_t lower_phase(struct lowering *l, int x, struct err *e) {
    const struct phase *f = &l->b->phases.items[x];
    TRY(post_receive(l, f, e));
    if (x + 1 < l->b->phases.n)
        TRY(post_receive(l, f + 1, e));
    enum way way;
    if (has_way(f, &way)) {
        if (outgoing(&l->p->chunks[f->chunk], way) >= 0)
            TRY(free_copy(l, f->chunk, outgoing(&l->p->chunks[f->chunk], way), f->q, e));
        int entry = l->received[way][f->chunk * l->n + f->q];
        if (entry >= 0)
            TRY(lower_wait(l, queue_of(way), entry, e));
    }
    if (f->kind == PHASE_BACKWARD) /* its gradient is back, so that it is gone; recompute may write it once more */
        TRY(wait_sent(l, f->chunk, WAY_FORWARD, f->q, e));
    TRY(run_program(l, f, e));
    return send(l, f, e);
}

static int last_backward(const struct phase_list *phases) {
    int last = -1;
    for (int x = 0; x < phases->n; x++)
        last = phases->items[x].kind == PHASE_BACKWARD ? x : last;
    return last;
}

static status_t wait_all_sent(struct lowering *l, struct err *e) {
    for (int c = 0; c < l->p->layout.virtual_stages; c++)
        for (int q = 0; q < l->n; q++)
            for (int way = 0; way < WAYS; way++)
                TRY(wait_sent(l, c, (enum way)way, q, e));
    return ST_OK;
}

static status_t lower_all(struct lowering *l, struct err *e) {
    const bool train = l->p->layout.kind == PLAN_TRAIN;
    const int last = last_backward(&l->b->phases);
    for (int x = 0; x < l->b->phases.n; x++) {
        if (train && x == last)
            TRY(exchange(l, e)); /* before the last backward pass: all losses are known, and it hides there */
        TRY(lower_phase(l, x, e));
    }
    if (l->units)
        TRY(units_finish(l, e));
    if (l->p->layout.kind == PLAN_EVALUATE)
        TRY(exchange(l, e));
    if (train)
        TRY(gradients_finish(l, e));
    if (l->exchange >= 0)
        TRY(lower_wait(l, QUEUE_DATA, l->exchange, e));
    if (train)
        TRY(gradients_step(l, e));
    return wait_all_sent(l, e);
}

static void lowering_done(struct lowering *l) {
    gradients_close(l->gradients);
    units_close(l->units);
    for (int way = 0; way < WAYS; way++) {
        free(l->received[way]);
        free(l->sent[way]);
    }
}

status_t plan_lower(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    CLEANUP(lowering_done)
    struct lowering l = { .b = b, .p = p, .n = plan_own_micro_batches(&p->layout), .exchange = -1 };
    int cells = p->layout.virtual_stages * l.n;
    for (int way = 0; way < WAYS; way++) {
        TRY(array_new(&l.received[way], cells, e));
        TRY(array_new(&l.sent[way], cells, e));
        for (int i = 0; i < cells; i++)
            l.received[way][i] = l.sent[way][i] = -1;
    }
    b->words = (b->programs[PHASE_FORWARD][0].n + b->programs[PHASE_BACKWARD][0].n) / 64 + 1;
    if (p->layout.zero >= 2)
        TRY(array_new(&b->alive, 2 * p->n_buckets * b->words, e));
    p->accumulator = -1;
    if (p->layout.kind == PLAN_TRAIN)
        TRY(gradients_open(&l, e));
    if (p->layout.zero == 3)
        TRY(units_open(&l, e));
    return lower_all(&l, e);
}
