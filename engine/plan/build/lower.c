/* Lowering: phases become the four queues, in the order of the schedule.
 *
 * For each phase: post the RECV of its input, and of the next phase's, so that the transfer overlaps with compute; wait
 * for the RECV; emit the phase's instructions; post the SEND of its output. Before a copy of a tensor is written again,
 * the SEND that still reads its bytes is waited for. lower_gradients.c and lower_zero3.c add the collectives around
 * each instruction. After the last phase: reductions, norms, DECIDE, STEP, and all remaining waits. A plan of averages
 * has no phase. */
#include "engine/plan/build/lower.h"

#include "engine/graph/op.h"

#include <stdlib.h>

/* --- boundary tensors ---*/

static enum plan_queue queue_of(enum plan_way way) { return way == WAY_FORWARD ? QUEUE_ACTIVATIONS : QUEUE_GRADIENTS; }

static const struct plan_boundary *incoming(const struct lowering *l, int virtual_stage, enum plan_way way) {
    return &l->p->virtual_stages[virtual_stage].receive[way];
}
static const struct plan_boundary *outgoing(const struct lowering *l, int virtual_stage, enum plan_way way) {
    return &l->p->virtual_stages[virtual_stage].send[way];
}

/* The first of `width` entries of a micro-batch's transfers. */
static int *entries_of(const struct lowering *l, int *const entries[WAYS], int virtual_stage, enum plan_way way,
                       int q) {
    return &entries[way][(virtual_stage * l->n + q) * l->width];
}

/* The rank of this column that holds a virtual stage of the model. */
static int rank_of(const struct plan *p, int number) {
    return number % p->layout.stages * p->layout.data + plan_data_rank(&p->layout);
}

static struct instruction transfer(const struct lowering *l, enum instruction_kind kind,
                                   const struct plan_virtual_stage *c, int tensor, int q, int peer) {
    struct instruction i = plan_instruction(kind);
    i.payload = PAYLOAD_TENSOR;
    i.op = tensor;
    i.virtual_stage = (int)(c - l->p->virtual_stages);
    i.micro_batch = plan_micro_batch(&l->p->layout, plan_data_rank(&l->p->layout), q);
    i.in_flight = q;
    i.peer = rank_of(l->p, peer);
    return i;
}

/* Micro-batch q's copy is about to be written again: its SEND must be done. k: in the list of outgoing tensors. */
static status_t wait_sent(struct lowering *l, int virtual_stage, enum plan_way way, int q, int k, struct err *e) {
    int *entry = &entries_of(l, l->sent, virtual_stage, way, q)[k];
    if (*entry < 0)
        return ST_OK;
    TRY(lower_wait(l, queue_of(way), *entry, e));
    *entry = -1;
    return ST_OK;
}

static status_t wait_all_of(struct lowering *l, int virtual_stage, enum plan_way way, int q, struct err *e) {
    for (int k = 0; k < outgoing(l, virtual_stage, way)->n; k++)
        TRY(wait_sent(l, virtual_stage, way, q, k, e));
    return ST_OK;
}

static int copies_of(const struct lowering *l, int tensor) {
    return l->p->tensors[LIFETIME_FORWARD][tensor].copies; /* boundary tensors have one lifetime */
}

/* Waits for the SENDs of all virtual stages that read the bytes of micro-batch q's copy of a tensor. The gradient of a
 * skip connection passes through several virtual stages of a rank: those after this one have sent the same copy. */
static status_t free_copy(struct lowering *l, int virtual_stage, int tensor, int q, struct err *e) {
    const int before = q - copies_of(l, tensor);
    for (int v = 0; v < l->p->layout.virtual_stages; v++)
        for (enum plan_way way = WAY_FORWARD; way < WAYS; way++) {
            const struct plan_boundary *out = outgoing(l, v, way);
            for (int k = 0; k < out->n; k++) {
                if (l->p->storage[out->tensor[k]] != l->p->storage[tensor])
                    continue;
                if (before >= 0)
                    TRY(wait_sent(l, v, way, before, k, e));
                if (v != virtual_stage)
                    TRY(wait_sent(l, v, way, q, k, e));
            }
        }
    return ST_OK;
}

static bool has_way(const struct phase *f, enum plan_way *way) {
    *way = f->kind == PHASE_FORWARD ? WAY_FORWARD : WAY_BACKWARD;
    return f->kind != PHASE_WEIGHT;
}

static status_t post_receive(struct lowering *l, const struct phase *f, struct err *e) {
    enum plan_way way;
    if (!has_way(f, &way))
        return ST_OK;
    const struct plan_virtual_stage *v = &l->p->virtual_stages[f->virtual_stage];
    const struct plan_boundary *in = incoming(l, f->virtual_stage, way);
    const int from = v->number + (way == WAY_FORWARD ? -1 : 1);
    int *entry = entries_of(l, l->received, f->virtual_stage, way, f->q);
    for (int k = 0; k < in->n; k++) {
        if (entry[k] >= 0)
            continue;
        TRY(free_copy(l, f->virtual_stage, in->tensor[k], f->q, e));
        TRY(lower_post(l, queue_of(way), transfer(l, INSTRUCTION_RECV, v, in->tensor[k], f->q, from), e));
        entry[k] = l->p->queue[queue_of(way)].n - 1;
    }
    return ST_OK;
}

static status_t send(struct lowering *l, const struct phase *f, struct err *e) {
    enum plan_way way;
    if (!has_way(f, &way))
        return ST_OK;
    const struct plan_virtual_stage *v = &l->p->virtual_stages[f->virtual_stage];
    const struct plan_boundary *out = outgoing(l, f->virtual_stage, way);
    const int to = v->number + (way == WAY_FORWARD ? 1 : -1);
    int *entry = entries_of(l, l->sent, f->virtual_stage, way, f->q);
    for (int k = 0; k < out->n; k++) {
        TRY(lower_post(l, queue_of(way), transfer(l, INSTRUCTION_SEND, v, out->tensor[k], f->q, to), e));
        entry[k] = l->p->queue[queue_of(way)].n - 1;
    }
    return ST_OK;
}

/* Before a phase: the copies that it sends are free, and its input is here. */
static status_t wait_boundaries(struct lowering *l, const struct phase *f, enum plan_way way, struct err *e) {
    const struct plan_boundary *out = outgoing(l, f->virtual_stage, way), *in = incoming(l, f->virtual_stage, way);
    const int *entry = entries_of(l, l->received, f->virtual_stage, way, f->q);
    for (int k = 0; k < out->n; k++)
        TRY(free_copy(l, f->virtual_stage, out->tensor[k], f->q, e));
    for (int k = 0; k < in->n; k++)
        TRY(lower_wait(l, queue_of(way), entry[k], e));
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
    const struct program *program = &l->b->programs[f->kind][f->virtual_stage];
    const int micro_batch = plan_micro_batch(&p->layout, plan_data_rank(&p->layout), f->q);
    l->at = f->kind == PHASE_FORWARD ? 0 : l->b->programs[PHASE_FORWARD][0].n;
    for (int k = 0; k < program->n; k++, l->at++) {
        struct instruction i = program->items[k];
        i.micro_batch = micro_batch;
        i.in_flight = f->q;
        const bool writes = i.kind == INSTRUCTION_BACKWARD_INPUT || i.kind == INSTRUCTION_BACKWARD_WEIGHT;
        if (l->gathers && i.op >= 0)
            TRY(gathers_before(l, block_of(p, &i), e));
        if (p->staged)
            gradients_alive(
                l); /* a gather that starts here must not use these bytes, though the bucket is settled next */
        if (writes)
            TRY(gradients_before(l, &i, e));
        if (l->gathers)
            gathers_alive(l);
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

/* Receives are posted one phase ahead, so that the transfer overlaps with that phase. */
static status_t lower_phase(struct lowering *l, int x, struct err *e) {
    const struct phase *f = &l->b->phases.items[x];
    TRY(post_receive(l, f, e));
    if (x + 1 < l->b->phases.n)
        TRY(post_receive(l, f + 1, e));
    enum plan_way way;
    if (has_way(f, &way))
        TRY(wait_boundaries(l, f, way, e));
    if (f->kind == PHASE_BACKWARD) /* the gradient is back, so the SEND is done; recompute may write the tensor again */
        TRY(wait_all_of(l, f->virtual_stage, WAY_FORWARD, f->q, e));
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
                TRY(wait_all_of(l, c, (enum plan_way)way, q, e));
    return ST_OK;
}

/* The running moments in fp32, before any op. */
static status_t take_statistics(struct lowering *l, struct err *e) {
    struct plan *p = l->p;
    struct instruction i = plan_instruction(INSTRUCTION_STATISTICS);
    i.end = p->n_shards;
    if (p->statistics_bytes == 0)
        return ST_OK;
    TRY(plan_emit(&p->queue[QUEUE_COMPUTE], i, e));
    if (p->layout.zero == 0)
        return ST_OK;
    i = plan_instruction(INSTRUCTION_EXCHANGE_STATISTICS);
    i.group = GROUP_DATA;
    TRY(lower_post(l, QUEUE_DATA, i, e));
    return lower_wait(l, QUEUE_DATA, p->queue[QUEUE_DATA].n - 1, e);
}

static status_t lower_all(struct lowering *l, struct err *e) {
    const bool train = l->p->layout.kind == PLAN_TRAIN;
    const int last = last_backward(&l->b->phases);
    TRY(take_statistics(l, e));
    for (int x = 0; x < l->b->phases.n; x++) {
        if (train && x == last)
            TRY(exchange(l, e)); /* all losses are known, and the exchange overlaps with the last backward pass */
        TRY(lower_phase(l, x, e));
    }
    if (l->gathers)
        TRY(gathers_finish(l, e));
    if (l->p->layout.kind == PLAN_EVALUATE)
        TRY(exchange(l, e));
    if (train)
        TRY(gradients_finish(l, e));
    if (l->exchange >= 0)
        TRY(lower_wait(l, QUEUE_DATA, l->exchange, e));
    if (train)
        TRY(gradients_step(l, e));
    if (l->p->layout.kind == PLAN_AVERAGE)
        TRY(gradients_switch_averages(l, e));
    return wait_all_sent(l, e);
}

static void lowering_done(struct lowering *l) {
    gradients_close(l->gradients);
    gathers_close(l->gathers);
    for (int way = 0; way < WAYS; way++) {
        free(l->received[way]);
        free(l->sent[way]);
    }
}

status_t plan_lower(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    CLEANUP(lowering_done)
    struct lowering l = { .b = b, .p = p, .n = plan_own_micro_batches(&p->layout), .width = 1, .exchange = -1 };
    for (int v = 0; v < p->layout.virtual_stages; v++)
        for (int way = 0; way < WAYS; way++) {
            const int in = p->virtual_stages[v].receive[way].n, out = p->virtual_stages[v].send[way].n;
            l.width = in > l.width ? in : l.width;
            l.width = out > l.width ? out : l.width;
        }
    int cells = p->layout.virtual_stages * l.n * l.width;
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
    if (p->layout.zero == 3 && p->layout.kind != PLAN_AVERAGE)
        TRY(gathers_open(&l, e));
    return lower_all(&l, e);
}
