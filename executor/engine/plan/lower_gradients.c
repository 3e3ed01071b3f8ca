/* Gradients on their way from a lane's micro-batch to the optimizer. A lane adds into a buffer of its own; whole lanes
 * are added as the lower levels of one binary tree, then the bucket is reduced over the data group, and under `reduce:
 * micro_batch` added to the rounds before. A buffer is given out again when its lane was added or its reduction posted;
 * the bucket's first write then waits for that reduction, and no earlier. */
#include "executor/engine/plan/lower.h"

#include "executor/engine/graph/op.h"

#include <assert.h>
#include <stdlib.h>

enum { BUFFERS_MOST = 64, ACCUMULATOR = BUFFERS_MOST - 1 /* its number until all lanes have theirs */ };
enum { NORM_ELEMENTS = 8 << 20 }; /* 32 MiB */

struct pending {
    int entry; /* REDUCE; -1 = none */
    int round;
};

struct gradient_lowering {
    int own, rounds;         /* lanes of this rank; micro-batches of a lane */
    bool by_step;            /* a lane folds all its rounds first */
    bool sharded;            /* an accumulator of own parts */
    int n_lanes;             /* times that a lane starts: own, or own * rounds */
    int *buffer;             /* [virtual_stages][n_lanes] -1 = not yet */
    uint64_t *taken;         /* [virtual_stages] buffers in use */
    int *finished;           /* [virtual_stages][n_lanes] buckets */
    int *buckets;            /* [virtual_stages] how many it has */
    struct pending *pending; /* [BUFFERS_MOST][n_buckets] */
    int *flying, n_flying;   /* staged: buckets whose reduction was posted and not waited for, oldest first */
    bool *open;              /* staged: buckets that have bytes */
    /* Buckets whose norm is taken next, in one go. */
    int norm_first, norm_end;
};

static struct instruction_list *compute(struct lowering *l) { return &l->p->queue[QUEUE_COMPUTE]; }

static struct pending *pending_of(const struct lowering *l, int buffer, int bucket) {
    return &l->gradients->pending[buffer * l->p->n_buckets + bucket];
}

static int lane_start(const struct gradient_lowering *g, int q) { return g->by_step ? q / g->rounds : q; }
static int lane_of(const struct gradient_lowering *g, int q) { return g->by_step ? q / g->rounds : q % g->own; }
static int round_of(const struct gradient_lowering *g, int q) { return g->by_step ? q % g->rounds : q / g->own; }

status_t gradients_open(struct lowering *l, struct err *e) {
    struct plan *p = l->p;
    TRY(array_new(&l->gradients, 1, e));
    struct gradient_lowering *g = l->gradients;
    const struct plan_layout *layout = &p->layout;
    int chunks = layout->virtual_stages;
    g->own = layout->lanes / layout->data;
    g->rounds = layout->micro_batches / layout->lanes;
    g->by_step = layout->reduce == PLAN_REDUCE_STEP;
    p->staged = layout->zero >= 2 && g->own == 1 && (!g->by_step || g->rounds == 1);
    g->sharded = p->staged || (layout->zero >= 1 && !g->by_step && g->rounds > 1);
    g->n_lanes = g->by_step ? g->own : l->n;
    TRY(array_new(&g->buffer, chunks * g->n_lanes, e));
    for (int i = 0; i < chunks * g->n_lanes; i++)
        g->buffer[i] = -1;
    TRY(array_new(&g->finished, chunks * g->n_lanes, e));
    TRY(array_new(&g->taken, chunks, e));
    TRY(array_new(&g->buckets, chunks, e));
    for (int b = 0; b < p->n_buckets; b++)
        g->buckets[p->buckets[b].chunk]++;
    TRY(array_new(&g->pending, BUFFERS_MOST * p->n_buckets, e));
    for (int i = 0; i < BUFFERS_MOST * p->n_buckets; i++)
        g->pending[i].entry = -1;
    TRY(array_new(&g->flying, p->n_buckets, e));
    return array_new(&g->open, p->n_buckets, e);
}

struct gradient_lowering *gradients_close(struct gradient_lowering *g) {
    if (!g)
        return NULL;
    free(g->buffer);
    free(g->finished);
    free(g->taken);
    free(g->buckets);
    free(g->pending);
    free(g->flying);
    free(g->open);
    free(g);
    return NULL;
}

/* --- buffers ---*/

static int buffer_of(struct lowering *l, int chunk, int lane) {
    struct gradient_lowering *g = l->gradients;
    int *buffer = &g->buffer[chunk * g->n_lanes + lane];
    if (*buffer < 0) {
        *buffer = l->p->staged ? 0 : __builtin_ctzll(~g->taken[chunk]);
        assert(*buffer < ACCUMULATOR);
        g->taken[chunk] |= UINT64_C(1) << *buffer;
        if (l->p->lane_buffers <= *buffer)
            l->p->lane_buffers = *buffer + 1;
    }
    return *buffer;
}

static void release(struct gradient_lowering *g, int chunk, int buffer) { g->taken[chunk] &= ~(UINT64_C(1) << buffer); }

static status_t emit_add(struct lowering *l, int64_t begin, int64_t end, int buffer, int source, bool copy,
                         struct err *e) {
    struct instruction i = plan_instruction(INSTRUCTION_ADD);
    i.begin = begin;
    i.end = end;
    i.buffer = buffer;
    i.source = source;
    i.first = copy;
    return plan_emit(compute(l), i, e);
}

/* A round's sum over all lanes and ranks is in: to the rounds before it. */
static status_t add_round(struct lowering *l, int bucket, int buffer, int round, struct err *e) {
    const struct gradient_lowering *g = l->gradients;
    int64_t begin, end;
    plan_own_range(l->p, bucket, plan_data_rank(&l->p->layout), &begin, &end);
    if (g->sharded)
        return emit_add(l, begin, end, ACCUMULATOR, buffer, round == 0, e);
    return !g->by_step && round > 0 ? emit_add(l, begin, end, 0, buffer, false, e) : ST_OK;
}

/* Waits for a bucket's reduction and for those of earlier rounds, which are added first. */
static status_t settle(struct lowering *l, int buffer, int bucket, struct err *e) {
    struct gradient_lowering *g = l->gradients;
    struct pending *last = pending_of(l, buffer, bucket);
    if (last->entry < 0)
        return ST_OK;
    for (;;) {
        int first = buffer;
        for (int k = 0; k < l->p->lane_buffers; k++) {
            const struct pending *p = pending_of(l, k, bucket);
            if (p->entry >= 0 && p->round < pending_of(l, first, bucket)->round)
                first = k;
        }
        struct pending *p = pending_of(l, first, bucket);
        TRY(lower_wait(l, QUEUE_DATA, p->entry, e));
        TRY(add_round(l, bucket, first, p->round, e));
        p->entry = -1;
        if (first == buffer)
            break;
    }
    if (!l->p->staged)
        return ST_OK;
    g->open[bucket] = false;
    int n = 0;
    for (int k = 0; k < g->n_flying; k++)
        if (g->flying[k] != bucket)
            g->flying[n++] = g->flying[k];
    g->n_flying = n;
    return ST_OK;
}

/* --- around a reverse op ---*/

status_t gradients_before(struct lowering *l, struct instruction *i, struct err *e) {
    struct gradient_lowering *g = l->gradients;
    int slots[OP_PARAMETERS];
    bool unused[OP_PARAMETERS];
    i->buffer = buffer_of(l, i->chunk, lane_start(g, i->flight));
    i->first = !g->by_step || round_of(g, i->flight) == 0;
    int n = plan_written_slots(l->p, i, slots, unused);
    for (int k = 0; k < n; k++)
        for (int b = plan_bucket_at(l->p, l->p->slot_begin[slots[k]]);
             b < l->p->n_buckets && l->p->buckets[b].begin < l->p->slot_end[slots[k]]; b++) {
            TRY(settle(l, i->buffer, b, e));
            if (!l->p->staged || g->open[b])
                continue;
            while (g->n_flying >= PLAN_IN_FLIGHT)
                TRY(settle(l, 0, g->flying[0], e));
            g->open[b] = true;
        }
    return ST_OK;
}

void gradients_alive(struct lowering *l) {
    for (int b = 0; b < l->p->n_buckets; b++)
        if (l->gradients->open[b])
            lower_alive(l, l->p->n_buckets + b);
}

static bool stands_alone(const struct plan *p, int bucket) {
    const struct graph *g = p->graph;
    for (int k = 0; k < p->n_own_slots; k++) {
        int s = p->slot_order[k];
        if (p->slot_begin[s] <= p->buckets[bucket].begin && p->buckets[bucket].begin < p->slot_end[s])
            return g->slots[g->parameters[g->slots[s].parameter].first_slot].next_slot < 0;
    }
    return true;
}

/* The pieces of buckets [first, end). Under ZeRO all ranks have it, whatever pieces are theirs. */
static status_t emit_pieces(struct lowering *l, enum instruction_kind kind, int first, int end, struct err *e) {
    const struct plan_bucket *last = &l->p->buckets[end - 1];
    const int begin = l->p->buckets[first].first_piece, n = last->first_piece + last->n_pieces - begin;
    if (n == 0 && l->p->layout.zero == 0)
        return ST_OK;
    struct instruction i = plan_instruction(kind);
    i.begin = begin;
    i.end = begin + n;
    i.buffer = l->gradients->sharded ? ACCUMULATOR : 0;
    return plan_emit(compute(l), i, e);
}

static status_t take_norms(struct lowering *l, struct err *e) {
    struct gradient_lowering *g = l->gradients;
    if (g->norm_first < g->norm_end)
        TRY(emit_pieces(l, INSTRUCTION_NORM, g->norm_first, g->norm_end, e));
    g->norm_first = g->norm_end;
    return ST_OK;
}

/* With those before it, until they are as many as a device's last cache holds: few calls, and nothing read from memory
 * once more. */
static status_t norm_of_bucket(struct lowering *l, int b, struct err *e) {
    struct gradient_lowering *g = l->gradients;
    const struct plan_bucket *buckets = l->p->buckets;
    if (!stands_alone(l->p, b))
        return ST_OK;
    if (b != g->norm_end) {
        TRY(take_norms(l, e));
        g->norm_first = b;
    }
    g->norm_end = b + 1;
    return buckets[b].end - buckets[g->norm_first].begin >= NORM_ELEMENTS ? take_norms(l, e) : ST_OK;
}

/* Norms are taken while a bucket is in cache, where nothing more is added to it; but a slot may lie in two buckets, of
 * which weight passes that are split off finish the second one first. */
static bool norms_at_once(const struct lowering *l) { return l->p->layout.data == 1 && !l->b->splits_weight; }

static status_t reduce(struct lowering *l, int b, int buffer, int round, struct err *e) {
    struct gradient_lowering *g = l->gradients;
    struct instruction i = plan_instruction(INSTRUCTION_REDUCE);
    i.entry = b;
    i.buffer = buffer;
    i.begin = l->p->buckets[b].begin;
    i.end = l->p->buckets[b].end;
    i.group = GROUP_DATA;
    TRY(lower_post(l, QUEUE_DATA, i, e));
    *pending_of(l, buffer, b) = (struct pending){ .entry = l->p->queue[QUEUE_DATA].n - 1, .round = round };
    if (l->p->staged)
        g->flying[g->n_flying++] = b;
    return ST_OK;
}

/* The last gradient of a bucket in a lane's last micro-batch is written. */
static status_t finish_bucket(struct lowering *l, int b, int chunk, int q, struct err *e) {
    struct gradient_lowering *g = l->gradients;
    const struct plan_bucket *bucket = &l->p->buckets[b];
    const int lane = lane_of(g, q), round = round_of(g, q), start = lane_start(g, q);
    const int adds = __builtin_ctz(~(unsigned)lane);
    for (int k = 0, top = start; k < adds; k++) {
        int below = top - (1 << k);
        TRY(emit_add(l, bucket->begin, bucket->end, buffer_of(l, chunk, below), buffer_of(l, chunk, top), false, e));
        top = below;
    }
    const bool whole = lane == g->own - 1;
    const int buffer = buffer_of(l, chunk, start - lane);
    if (whole && l->p->layout.data > 1) {
        TRY(reduce(l, b, buffer, round, e));
    } else if (whole) {
        TRY(add_round(l, b, buffer, round, e));
        if (norms_at_once(l) && (g->by_step || round == g->rounds - 1))
            TRY(norm_of_bucket(l, b, e));
    }
    if (++g->finished[chunk * g->n_lanes + start] < g->buckets[chunk])
        return ST_OK;
    for (int k = 0, top = start; k < adds; k++) {
        release(g, chunk, buffer_of(l, chunk, top));
        top -= 1 << k;
    }
    if (whole && (g->sharded || (!g->by_step && round > 0)))
        release(g, chunk, buffer);
    return ST_OK;
}

status_t gradients_after(struct lowering *l, const struct instruction *i, struct err *e) {
    const struct gradient_lowering *g = l->gradients;
    const struct plan *p = l->p;
    if (g->by_step && round_of(g, i->flight) != g->rounds - 1)
        return ST_OK;

    int slots[OP_PARAMETERS];
    bool unused[OP_PARAMETERS];
    int n = plan_written_slots(p, i, slots, unused), low = p->n_buckets, high = -1;
    for (int k = 0; k < n; k++) {
        int first = plan_bucket_at(p, p->slot_begin[slots[k]]), last = plan_bucket_at(p, p->slot_end[slots[k]] - 1);
        low = first < low ? first : low;
        high = last > high ? last : high;
    }

    /* Split off, the weights come last of all; else an op's weight comes after its input. */
    for (int b = low; b <= high; b++) {
        const struct plan_bucket *bucket = &p->buckets[b];
        bool weight = l->b->splits_weight ? bucket->ready_weight >= 0 : bucket->ready_weight == bucket->ready;
        int ready = l->b->splits_weight && weight ? bucket->ready_weight : bucket->ready;
        if (i->op == ready && weight == (i->kind == INSTRUCTION_BACKWARD_WEIGHT))
            TRY(finish_bucket(l, b, i->chunk, i->flight, e));
    }
    return ST_OK;
}

/* --- the end of the step ---*/

static int sibling_peer(const struct lowering *l, int stage) {
    return stage * l->p->layout.data + plan_data_rank(&l->p->layout);
}

/* The elements of a slot that this rank owns in one of its buckets. */
static void part_of_slot(const struct lowering *l, int slot, int bucket, int64_t *begin, int64_t *end) {
    const struct plan *p = l->p;
    int64_t n = shape_elements(&p->graph->parameters[p->graph->slots[slot].parameter].shape);
    plan_own_range(p, bucket, plan_data_rank(&p->layout), begin, end);
    *begin -= p->slot_begin[slot];
    *end -= p->slot_begin[slot];
    *begin = *begin < n ? *begin : n;
    *end = *end < n ? *end : n;
}

/* Sends or receives, for each bucket of `slot` (one of this stage), this rank's part of `what`. */
static status_t pass_slot(struct lowering *l, enum instruction_kind kind, enum plan_what what, int slot, int op,
                          int stage, struct err *e) {
    const struct plan *p = l->p;
    enum plan_queue queue = what == WHAT_GRADIENT ? QUEUE_GRADIENTS : QUEUE_ACTIVATIONS;
    for (int b = plan_bucket_at(p, p->slot_begin[slot]); b < p->n_buckets && p->buckets[b].begin < p->slot_end[slot];
         b++) {
        int64_t begin, end;
        part_of_slot(l, slot, b, &begin, &end);
        struct instruction i = plan_instruction(kind);
        i.what = what;
        i.op = op;
        i.begin = begin;
        i.end = end;
        i.buffer = l->gradients->sharded ? ACCUMULATOR : 0;
        i.peer = sibling_peer(l, stage);
        TRY(lower_post(l, queue, i, e));
    }
    return ST_OK;
}

static status_t add_sibling(struct lowering *l, int owner, int slot, struct err *e) {
    const struct plan *p = l->p;
    for (int b = plan_bucket_at(p, p->slot_begin[owner]); b < p->n_buckets && p->buckets[b].begin < p->slot_end[owner];
         b++) {
        if (p->layout.zero == 0 && p->buckets[b].n_pieces == 0)
            continue;
        struct instruction i = plan_instruction(INSTRUCTION_ADD_SLOT);
        i.begin = p->buckets[b].first_piece;
        i.end = i.begin + p->buckets[b].n_pieces;
        i.buffer = l->gradients->sharded ? ACCUMULATOR : 0;
        i.source = slot;
        TRY(plan_emit(compute(l), i, e));
    }
    return ST_OK;
}

static bool is_here(const struct plan *p, int slot) { return p->slot_stage[slot] == plan_stage(&p->layout); }

/* Sums of a parameter's groups, in the order of its slots; those of other stages arrive first. */
static status_t add_siblings(struct lowering *l, struct err *e) {
    const struct plan *p = l->p;
    const struct graph *g = p->graph;
    const int stage = plan_stage(&p->layout);
    int first = p->queue[QUEUE_GRADIENTS].n;
    for (int i = 0; i < g->n_parameters; i++) {
        int owner = g->parameters[i].first_slot;
        for (int s = g->slots[owner].next_slot; s >= 0; s = g->slots[s].next_slot) {
            if (is_here(p, s) && p->parameter_stage[i] != stage)
                TRY(pass_slot(l, INSTRUCTION_SEND, WHAT_GRADIENT, s, s, p->parameter_stage[i], e));
            if (!is_here(p, s) && p->parameter_stage[i] == stage)
                TRY(pass_slot(l, INSTRUCTION_RECV, WHAT_GRADIENT, owner, s, p->slot_stage[s], e));
        }
    }
    for (int n = first; n < p->queue[QUEUE_GRADIENTS].n; n++)
        TRY(lower_wait(l, QUEUE_GRADIENTS, n, e));
    for (int i = 0; i < g->n_parameters; i++) {
        int owner = g->parameters[i].first_slot;
        if (g->slots[owner].next_slot < 0 || p->parameter_stage[i] != stage)
            continue;
        for (int s = g->slots[owner].next_slot; s >= 0; s = g->slots[s].next_slot)
            TRY(add_sibling(l, owner, s, e));
        const int bucket = plan_bucket_at(p, p->slot_begin[owner]);
        int end = bucket;
        while (end < p->n_buckets && p->buckets[end].begin < p->slot_end[owner])
            end++;
        TRY(emit_pieces(l, INSTRUCTION_NORM, bucket, end, e));
    }
    return ST_OK;
}

status_t gradients_finish(struct lowering *l, struct err *e) {
    struct plan *p = l->p;
    for (int b = 0; b < p->n_buckets; b++) {
        int last = -1;
        for (int k = 0; k < p->lane_buffers; k++)
            if (pending_of(l, k, b)->entry >= 0 &&
                (last < 0 || pending_of(l, k, b)->round > pending_of(l, last, b)->round))
                last = k;
        if (last >= 0)
            TRY(settle(l, last, b, e));
        if (!norms_at_once(l))
            TRY(norm_of_bucket(l, b, e));
    }
    TRY(take_norms(l, e));
    TRY(add_siblings(l, e));
    if (p->layout.stages == 1 && p->layout.zero == 0)
        return ST_OK;
    struct instruction i = plan_instruction(INSTRUCTION_EXCHANGE_NORMS);
    i.group = p->layout.zero ? GROUP_WORLD : GROUP_STAGES;
    TRY(lower_post(l, QUEUE_DATA, i, e));
    return lower_wait(l, QUEUE_DATA, p->queue[QUEUE_DATA].n - 1, e);
}

static bool gathers(const struct plan *p) { return p->layout.zero == 1 || p->layout.zero == 2; }

/* The parameter whose slot a bucket of siblings has, and which is another stage's; -1. */
static int foreign_parameter(const struct plan *p, int bucket) {
    for (int k = 0; k < p->n_own_slots; k++) {
        int s = p->slot_order[k], parameter = p->graph->slots[s].parameter;
        if (p->slot_begin[s] <= p->buckets[bucket].begin && p->buckets[bucket].begin < p->slot_end[s])
            return p->parameter_stage[parameter] != plan_stage(&p->layout) ? parameter : -1;
    }
    return -1;
}

/* Weights that other stages read too go to them, once to each. */
static status_t return_weights(struct lowering *l, struct err *e) {
    const struct plan *p = l->p;
    const struct graph *g = p->graph;
    const int stage = plan_stage(&p->layout);
    for (int i = 0; i < g->n_parameters; i++) {
        int owner = g->parameters[i].first_slot, here = -1;
        for (int s = owner; s >= 0; s = g->slots[s].next_slot) {
            bool again = false;
            for (int before = owner; before != s; before = g->slots[before].next_slot)
                again |= p->slot_stage[before] == p->slot_stage[s];
            if (p->parameter_stage[i] == stage && p->slot_stage[s] != stage && !again)
                TRY(pass_slot(l, INSTRUCTION_SEND, WHAT_WEIGHT, owner, i, p->slot_stage[s], e));
            if (here < 0 && is_here(p, s))
                here = s;
        }
        if (p->parameter_stage[i] != stage && here >= 0)
            TRY(pass_slot(l, INSTRUCTION_RECV, WHAT_WEIGHT, here, i, p->parameter_stage[i], e));
    }
    return ST_OK;
}

static void finish_numbers(struct lowering *l) {
    struct plan *p = l->p;
    if (!l->gradients->sharded)
        return;
    p->accumulator = p->result = p->lane_buffers;
    for (int q = 0; q < QUEUES; q++)
        for (int n = 0; n < p->queue[q].n; n++)
            if (p->queue[q].items[n].buffer == ACCUMULATOR)
                p->queue[q].items[n].buffer = p->accumulator;
}

static bool is_stepped(const struct plan *p, int b) {
    return foreign_parameter(p, b) < 0 &&
           (p->layout.zero == 0 || p->buckets[b].parameter >= 0 || p->buckets[b].own_weight >= 0);
}

/* All at once, but that each bucket is gathered as soon as it was stepped. */
static status_t emit_steps(struct lowering *l, struct err *e) {
    const struct plan *p = l->p;
    for (int b = 0, end; b < p->n_buckets; b = end) {
        end = b + 1;
        if (!is_stepped(p, b))
            continue;
        while (!gathers(p) && end < p->n_buckets && is_stepped(p, end))
            end++;
        TRY(emit_pieces(l, INSTRUCTION_STEP, b, end, e));
        if (gathers(p) && p->buckets[b].parameter >= 0)
            TRY(lower_gather(l, b, e));
    }
    return ST_OK;
}

status_t gradients_step(struct lowering *l, struct err *e) {
    struct plan *p = l->p;
    TRY(plan_emit(compute(l), plan_instruction(INSTRUCTION_DECIDE), e));
    TRY(emit_steps(l, e));
    int first = p->queue[QUEUE_ACTIVATIONS].n;
    TRY(return_weights(l, e));
    for (int n = first; n < p->queue[QUEUE_ACTIVATIONS].n; n++)
        TRY(lower_wait(l, QUEUE_ACTIVATIONS, n, e));
    for (int b = 0; gathers(p) && b < p->n_buckets; b++)
        if (foreign_parameter(p, b) >= 0 && p->buckets[b].parameter >= 0)
            TRY(lower_gather(l, b, e));
    if (gathers(p) && p->queue[QUEUE_DATA].n > l->data_waited)
        TRY(lower_wait(l, QUEUE_DATA, p->queue[QUEUE_DATA].n - 1, e));
    finish_numbers(l);
    return ST_OK;
}
