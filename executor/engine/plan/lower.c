#include "executor/engine/plan/lower.h"

#include "executor/engine/graph/op.h"

#include <stdlib.h>

struct instruction *plan_emit(struct instruction_list *list, enum instruction_kind kind) {
    if (!(list->n & (list->n - 1))) {
        struct instruction *bigger = reallocarray(list->items, list->n ? (size_t)list->n * 2 : 1, sizeof *bigger);
        if (!bigger)
            abort();
        list->items = bigger;
    }
    struct instruction *i = &list->items[list->n++];
    *i = (struct instruction){
        .kind = kind, .op = -1, .micro_batch = -1, .flight = -1, .chunk = -1, .entry = -1, .peer = -1
    };
    return i;
}

void lower_wait(struct lowering *l, enum plan_queue queue, int entry) {
    if (queue == QUEUE_DATA) {
        if (entry < l->data_waited)
            return;
        l->data_waited = entry + 1;
    }
    struct instruction *i = plan_emit(&l->p->queue[QUEUE_COMPUTE], INSTRUCTION_WAIT);
    i->queue = queue;
    i->entry = entry;
}

struct instruction *lower_post(struct lowering *l, enum plan_queue queue, enum instruction_kind kind) {
    struct instruction *i = plan_emit(&l->p->queue[queue], kind);
    i->after = l->p->queue[QUEUE_COMPUTE].n;
    return i;
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

static void describe(struct lowering *l, struct instruction *i, const struct plan_chunk *c, int tensor, int q,
                     int peer) {
    i->what = WHAT_TENSOR;
    i->op = tensor;
    i->chunk = (int)(c - l->p->chunks);
    i->micro_batch = plan_micro_batch(&l->p->layout, plan_data_rank(&l->p->layout), q);
    i->flight = q;
    i->peer = rank_of(l->p, peer);
}

/* The bytes of micro-batch q's copy are needed again: what was sent from them must be gone. */
static void wait_sent(struct lowering *l, int chunk, enum way way, int q) {
    int *entry = &l->sent[way][chunk * l->n + q];
    if (*entry < 0)
        return;
    lower_wait(l, queue_of(way), *entry);
    *entry = -1;
}

static int copies_of(const struct lowering *l, int tensor) {
    return l->p->tensors[LIFE_FORWARD][tensor].copies; /* boundary tensors have one life */
}

static void free_copy(struct lowering *l, int chunk, int tensor, int q) {
    int before = q - copies_of(l, tensor);
    if (before < 0)
        return;
    for (int way = 0; way < WAYS; way++) {
        int out = outgoing(&l->p->chunks[chunk], (enum way)way);
        if (out >= 0 && l->p->storage[out] == l->p->storage[tensor])
            wait_sent(l, chunk, (enum way)way, before);
    }
}

static bool has_way(const struct phase *f, enum way *way) {
    *way = f->kind == PHASE_FORWARD ? WAY_FORWARD : WAY_BACKWARD;
    return f->kind != PHASE_WEIGHT;
}

static void post_receive(struct lowering *l, const struct phase *f) {
    enum way way;
    const struct plan_chunk *c = &l->p->chunks[f->chunk];
    if (!has_way(f, &way) || incoming(c, way) < 0 || l->received[way][f->chunk * l->n + f->q] >= 0)
        return;
    int tensor = incoming(c, way);
    free_copy(l, f->chunk, tensor, f->q);
    struct instruction *i = lower_post(l, queue_of(way), INSTRUCTION_RECV);
    describe(l, i, c, tensor, f->q, c->number + (way == WAY_FORWARD ? -1 : 1));
    l->received[way][f->chunk * l->n + f->q] = l->p->queue[queue_of(way)].n - 1;
}

static void send(struct lowering *l, const struct phase *f) {
    enum way way;
    const struct plan_chunk *c = &l->p->chunks[f->chunk];
    if (!has_way(f, &way) || outgoing(c, way) < 0)
        return;
    struct instruction *i = lower_post(l, queue_of(way), INSTRUCTION_SEND);
    describe(l, i, c, outgoing(c, way), f->q, c->number + (way == WAY_FORWARD ? 1 : -1));
    l->sent[way][f->chunk * l->n + f->q] = l->p->queue[queue_of(way)].n - 1;
}

/* --- phases ---*/

static int block_of(const struct plan *p, const struct instruction *i) {
    const struct graph *g = p->graph;
    if (i->op < 0)
        return -1;
    bool forward = i->kind == INSTRUCTION_FORWARD || i->kind == INSTRUCTION_RECOMPUTE;
    return g->ops[forward ? i->op : g->reverse[i->op].op].block;
}

static void run_program(struct lowering *l, const struct phase *f) {
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
            units_before(l, block_of(p, &i));
        if (p->staged)
            gradients_alive(l); /* what a gather that starts here must not fall on, though it is settled next */
        if (writes)
            gradients_before(l, &i);
        if (l->units)
            units_alive(l);
        if (p->staged)
            gradients_alive(l);
        *plan_emit(&p->queue[QUEUE_COMPUTE], i.kind) = i;
        if (writes)
            gradients_after(l, &i);
    }
}

static void exchange(struct lowering *l) {
    if (l->p->layout.world_size == 1)
        return;
    lower_post(l, QUEUE_DATA, INSTRUCTION_EXCHANGE)->group = GROUP_WORLD;
    l->exchange = l->p->queue[QUEUE_DATA].n - 1;
}

/* A receive is posted a phase ahead, so that it travels while that phase computes. */
static void lower_phase(struct lowering *l, int x) {
    const struct phase *f = &l->b->phases.items[x];
    post_receive(l, f);
    if (x + 1 < l->b->phases.n)
        post_receive(l, f + 1);
    enum way way;
    if (has_way(f, &way)) {
        if (outgoing(&l->p->chunks[f->chunk], way) >= 0)
            free_copy(l, f->chunk, outgoing(&l->p->chunks[f->chunk], way), f->q);
        int entry = l->received[way][f->chunk * l->n + f->q];
        if (entry >= 0)
            lower_wait(l, queue_of(way), entry);
    }
    if (f->kind == PHASE_BACKWARD) /* its gradient is back, so that it is gone; recompute may write it once more */
        wait_sent(l, f->chunk, WAY_FORWARD, f->q);
    run_program(l, f);
    send(l, f);
}

static int last_backward(const struct phase_list *phases) {
    int last = -1;
    for (int x = 0; x < phases->n; x++)
        last = phases->items[x].kind == PHASE_BACKWARD ? x : last;
    return last;
}

static void wait_all_sent(struct lowering *l) {
    for (int c = 0; c < l->p->layout.virtual_stages; c++)
        for (int q = 0; q < l->n; q++)
            for (int way = 0; way < WAYS; way++)
                wait_sent(l, c, (enum way)way, q);
}

static void lower_all(struct lowering *l) {
    const bool train = l->p->layout.kind == PLAN_TRAIN;
    const int last = last_backward(&l->b->phases);
    for (int x = 0; x < l->b->phases.n; x++) {
        if (train && x == last)
            exchange(l); /* before the last backward pass: all losses are known, and it hides there */
        lower_phase(l, x);
    }
    if (l->units)
        units_finish(l);
    if (l->p->layout.kind == PLAN_EVALUATE)
        exchange(l);
    if (train)
        gradients_finish(l);
    if (l->exchange >= 0)
        lower_wait(l, QUEUE_DATA, l->exchange);
    if (train)
        gradients_step(l);
    wait_all_sent(l);
}

status_t plan_lower(struct building *b, struct err *e) {
    (void)e;
    struct plan *p = b->plan;
    struct lowering l = { .b = b, .p = p, .n = plan_own_micro_batches(&p->layout), .exchange = -1 };
    int cells = p->layout.virtual_stages * l.n;
    for (int way = 0; way < WAYS; way++) {
        l.received[way] = plan_array(cells, sizeof(int));
        l.sent[way] = plan_array(cells, sizeof(int));
        for (int i = 0; i < cells; i++)
            l.received[way][i] = l.sent[way][i] = -1;
    }
    b->words = (b->programs[PHASE_FORWARD][0].n + b->programs[PHASE_BACKWARD][0].n) / 64 + 1;
    if (p->layout.zero >= 2)
        b->alive = plan_array(2 * p->n_buckets * b->words, sizeof *b->alive);
    p->accumulator = -1;
    if (p->layout.kind == PLAN_TRAIN)
        l.gradients = gradients_open(&l);
    if (p->layout.zero == 3)
        l.units = units_open(&l);
    lower_all(&l);
    gradients_close(l.gradients);
    units_close(l.units);
    for (int way = 0; way < WAYS; way++) {
        free(l.received[way]);
        free(l.sent[way]);
    }
    return ST_OK;
}
