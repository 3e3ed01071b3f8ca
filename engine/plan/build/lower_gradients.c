/* The way of a gradient from a micro-batch to the optimizer.
 *
 *   1. BACKWARD_* adds a micro-batch's gradient to the buffer of its lane.
 *   2. A bucket that is complete in a lane is added to the lane before it, as the lower levels of one binary tree over
 *      all lanes. A buffer is free again once its lane is added.
 *   3. A bucket that is complete in all lanes of the rank is reduced over the data ranks: the upper levels of the tree.
 *      With `reduce: step` this happens once a step; with `micro_batch` once a round, and rounds are added in order.
 *   4. Before the bucket's bytes are written again, or read, its reduction is waited for ("settled").
 *   5. After the last phase: siblings are added to the owning use, norms are taken and exchanged, DECIDE, then STEP;
 *      ZeRO 1 and 2 gather the new weights, and shared weights are sent to the other stages that read them. */
#include "engine/plan/build/lower.h"

#include "engine/graph/op.h"

#include <assert.h>
#include <stdlib.h>

/* ACCUMULATOR stands for the accumulator of own parts until all lanes have a buffer; its number is known then. */
enum { MAX_BUFFERS = 64, ACCUMULATOR = MAX_BUFFERS - 1 };
enum { NORM_ELEMENTS = 8 << 20 }; /* 32 MiB */

struct pending {
    int entry; /* REDUCE; -1 = none */
    int round;
};

struct gradient_lowering {
    int own, rounds;           /* lanes of this rank; micro-batches of a lane */
    bool by_step;              /* `reduce: step`: a lane adds all its rounds first */
    bool sharded;              /* there is an accumulator of own parts */
    int n_lanes;               /* times that a lane starts: own, or own * rounds */
    int *buffer;               /* [virtual_stages][n_lanes] -1 = not yet */
    uint64_t *taken;           /* [virtual_stages] buffers in use */
    int *finished;             /* [virtual_stages][n_lanes] buckets */
    int *buckets;              /* [virtual_stages] how many it has */
    struct pending *pending;   /* [MAX_BUFFERS][n_buckets] */
    int *reducing, n_reducing; /* staged: buckets whose reduction was posted and not waited for, oldest first */
    bool *open;                /* staged: buckets that have bytes */
    /* Buckets whose norm is taken next, in one go. */
    int norm_first, norm_end;
};

static struct instruction_list *compute(struct lowering *l) { return &l->p->queue[QUEUE_COMPUTE]; }

static struct pending *pending_of(const struct lowering *l, int buffer, int bucket) {
    return &l->gradients->pending[buffer * l->p->n_buckets + bucket];
}

/* The buffer that the step's sum ends in. A plan of averages has no gradients. */
static int result_buffer(const struct lowering *l) { return l->gradients && l->gradients->sharded ? ACCUMULATOR : 0; }

static int lane_start(const struct gradient_lowering *g, int q) { return g->by_step ? q / g->rounds : q; }
static int lane_of(const struct gradient_lowering *g, int q) { return g->by_step ? q / g->rounds : q % g->own; }
static int round_of(const struct gradient_lowering *g, int q) { return g->by_step ? q % g->rounds : q / g->own; }

status_t gradients_open(struct lowering *l, struct err *e) {
    struct plan *p = l->p;
    TRY(array_new(&l->gradients, 1, e));
    struct gradient_lowering *g = l->gradients;
    const struct plan_layout *layout = &p->layout;
    int virtual_stages = layout->virtual_stages;
    g->own = layout->lanes / layout->data;
    g->rounds = layout->micro_batches / layout->lanes;
    g->by_step = layout->reduce == PLAN_REDUCE_STEP;
    p->staged = layout->zero >= 2 && g->own == 1 && (!g->by_step || g->rounds == 1);
    g->sharded = p->staged || (layout->zero >= 1 && !g->by_step && g->rounds > 1);
    g->n_lanes = g->by_step ? g->own : l->n;
    TRY(array_new(&g->buffer, virtual_stages * g->n_lanes, e));
    for (int i = 0; i < virtual_stages * g->n_lanes; i++)
        g->buffer[i] = -1;
    TRY(array_new(&g->finished, virtual_stages * g->n_lanes, e));
    TRY(array_new(&g->taken, virtual_stages, e));
    TRY(array_new(&g->buckets, virtual_stages, e));
    for (int b = 0; b < p->n_buckets; b++)
        g->buckets[p->buckets[b].virtual_stage]++;
    TRY(array_new(&g->pending, MAX_BUFFERS * p->n_buckets, e));
    for (int i = 0; i < MAX_BUFFERS * p->n_buckets; i++)
        g->pending[i].entry = -1;
    TRY(array_new(&g->reducing, p->n_buckets, e));
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
    free(g->reducing);
    free(g->open);
    free(g);
    return NULL;
}

/* --- buffers ---*/

static int buffer_of(struct lowering *l, int virtual_stage, int lane) {
    struct gradient_lowering *g = l->gradients;
    int *buffer = &g->buffer[virtual_stage * g->n_lanes + lane];
    if (*buffer < 0) {
        *buffer = l->p->staged ? 0 : __builtin_ctzll(~g->taken[virtual_stage]);
        assert(*buffer < ACCUMULATOR);
        g->taken[virtual_stage] |= UINT64_C(1) << *buffer;
        if (l->p->lane_buffers <= *buffer)
            l->p->lane_buffers = *buffer + 1;
    }
    return *buffer;
}

static void release(struct gradient_lowering *g, int virtual_stage, int buffer) {
    g->taken[virtual_stage] &= ~(UINT64_C(1) << buffer);
}

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

/* Adds the sum of a round, over all lanes and ranks, to the rounds before it. */
static status_t add_round(struct lowering *l, int bucket, int buffer, int round, struct err *e) {
    const struct gradient_lowering *g = l->gradients;
    int64_t begin, end;
    plan_own_range(l->p, bucket, plan_data_rank(&l->p->layout), &begin, &end);
    if (g->sharded)
        return emit_add(l, begin, end, ACCUMULATOR, buffer, round == 0, e);
    return !g->by_step && round > 0 ? emit_add(l, begin, end, 0, buffer, false, e) : ST_OK;
}

/* Waits for a bucket's reductions up to this buffer's, earlier rounds first, and adds them. */
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
    for (int k = 0; k < g->n_reducing; k++)
        if (g->reducing[k] != bucket)
            g->reducing[n++] = g->reducing[k];
    g->n_reducing = n;
    return ST_OK;
}

/* --- around a reverse op ---*/

status_t gradients_before(struct lowering *l, struct instruction *i, struct err *e) {
    struct gradient_lowering *g = l->gradients;
    int uses[OP_PARAMETERS];
    bool unused[OP_PARAMETERS];
    i->buffer = buffer_of(l, i->virtual_stage, lane_start(g, i->in_flight));
    i->first = !g->by_step || round_of(g, i->in_flight) == 0;
    int n = plan_written_uses(l->p, i, uses, unused);
    for (int k = 0; k < n; k++)
        for (int b = plan_bucket_at(l->p, l->p->use_begin[uses[k]]);
             b < l->p->n_buckets && l->p->buckets[b].begin < l->p->use_end[uses[k]]; b++) {
            TRY(settle(l, i->buffer, b, e));
            if (!l->p->staged || g->open[b])
                continue;
            while (g->n_reducing >= PLAN_REDUCTIONS_IN_FLIGHT)
                TRY(settle(l, 0, g->reducing[0], e));
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
    for (int k = 0; k < p->n_own_uses; k++) {
        int s = p->use_order[k];
        if (p->use_begin[s] <= p->buckets[bucket].begin && p->buckets[bucket].begin < p->use_end[s])
            return g->uses[g->parameters[g->uses[s].parameter].first_use].next_use < 0;
    }
    return true;
}

/* An instruction for the shards of buckets [first, end). With ZeRO every rank has it, even without shards. */
static status_t emit_shards(struct lowering *l, enum instruction_kind kind, int first, int end, struct err *e) {
    const struct plan_bucket *last = &l->p->buckets[end - 1];
    const int begin = l->p->buckets[first].first_shard, n = last->first_shard + last->n_shards - begin;
    if (n == 0 && l->p->layout.zero == 0)
        return ST_OK;
    struct instruction i = plan_instruction(kind);
    i.begin = begin;
    i.end = begin + n;
    i.buffer = result_buffer(l);
    return plan_emit(compute(l), i, e);
}

static status_t take_norms(struct lowering *l, struct err *e) {
    struct gradient_lowering *g = l->gradients;
    if (g->norm_first < g->norm_end)
        TRY(emit_shards(l, INSTRUCTION_NORM, g->norm_first, g->norm_end, e));
    g->norm_first = g->norm_end;
    return ST_OK;
}

/* Adjacent buckets share one NORM, up to the size of a device's last cache: few calls, and no second read from memory.
 */
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

/* Whether a bucket's norm may be taken while the bucket is in cache: nothing is added to it later. Split weight passes
 * are excluded, because they may finish the second bucket of a use before the first. */
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
        g->reducing[g->n_reducing++] = b;
    return ST_OK;
}

/* Called when the last gradient of a bucket, in the last micro-batch of a lane, is written. */
static status_t finish_bucket(struct lowering *l, int b, int virtual_stage, int q, struct err *e) {
    struct gradient_lowering *g = l->gradients;
    const struct plan_bucket *bucket = &l->p->buckets[b];
    const int lane = lane_of(g, q), round = round_of(g, q), start = lane_start(g, q);
    const int adds = __builtin_ctz(~(unsigned)lane);
    for (int k = 0, top = start; k < adds; k++) {
        int below = top - (1 << k);
        TRY(emit_add(l, bucket->begin, bucket->end, buffer_of(l, virtual_stage, below),
                     buffer_of(l, virtual_stage, top), false, e));
        top = below;
    }
    const bool whole = lane == g->own - 1;
    const int buffer = buffer_of(l, virtual_stage, start - lane);
    if (whole && l->p->layout.data > 1) {
        TRY(reduce(l, b, buffer, round, e));
    } else if (whole) {
        TRY(add_round(l, b, buffer, round, e));
        if (norms_at_once(l) && (g->by_step || round == g->rounds - 1))
            TRY(norm_of_bucket(l, b, e));
    }
    if (++g->finished[virtual_stage * g->n_lanes + start] < g->buckets[virtual_stage])
        return ST_OK;
    for (int k = 0, top = start; k < adds; k++) {
        release(g, virtual_stage, buffer_of(l, virtual_stage, top));
        top -= 1 << k;
    }
    if (whole && (g->sharded || (!g->by_step && round > 0)))
        release(g, virtual_stage, buffer);
    return ST_OK;
}

status_t gradients_after(struct lowering *l, const struct instruction *i, struct err *e) {
    const struct gradient_lowering *g = l->gradients;
    const struct plan *p = l->p;
    if (g->by_step && round_of(g, i->in_flight) != g->rounds - 1)
        return ST_OK;

    int uses[OP_PARAMETERS];
    bool unused[OP_PARAMETERS];
    int n = plan_written_uses(p, i, uses, unused), low = p->n_buckets, high = -1;
    for (int k = 0; k < n; k++) {
        int first = plan_bucket_at(p, p->use_begin[uses[k]]), last = plan_bucket_at(p, p->use_end[uses[k]] - 1);
        low = first < low ? first : low;
        high = last > high ? last : high;
    }

    /* Split weight passes come last of all; otherwise an op's weight gradient follows its input gradient. */
    for (int b = low; b <= high; b++) {
        const struct plan_bucket *bucket = &p->buckets[b];
        bool weight = l->b->splits_weight ? bucket->ready_weight >= 0 : bucket->ready_weight == bucket->ready;
        int ready = l->b->splits_weight && weight ? bucket->ready_weight : bucket->ready;
        if (i->op == ready && weight == (i->kind == INSTRUCTION_BACKWARD_WEIGHT))
            TRY(finish_bucket(l, b, i->virtual_stage, i->in_flight, e));
    }
    return ST_OK;
}

/* --- the end of the step ---*/

static int sibling_peer(const struct lowering *l, int stage) {
    return stage * l->p->layout.data + plan_data_rank(&l->p->layout);
}

/* The elements of a use that this rank owns in one of its buckets. */
static void part_of_use(const struct lowering *l, int use, int bucket, int64_t *begin, int64_t *end) {
    const struct plan *p = l->p;
    int64_t n = shape_elements(&p->graph->parameters[p->graph->uses[use].parameter].shape);
    plan_own_range(p, bucket, plan_data_rank(&p->layout), begin, end);
    *begin -= p->use_begin[use];
    *end -= p->use_begin[use];
    *begin = *begin < n ? *begin : n;
    *end = *end < n ? *end : n;
}

/* Sends or receives, for each bucket of `use` (one of this stage), this rank's part of `payload`. */
static status_t pass_use(struct lowering *l, enum instruction_kind kind, enum plan_payload payload, int use, int op,
                         int stage, struct err *e) {
    const struct plan *p = l->p;
    enum plan_queue queue = payload == PAYLOAD_GRADIENT ? QUEUE_GRADIENTS : QUEUE_ACTIVATIONS;
    for (int b = plan_bucket_at(p, p->use_begin[use]); b < p->n_buckets && p->buckets[b].begin < p->use_end[use]; b++) {
        int64_t begin, end;
        part_of_use(l, use, b, &begin, &end);
        struct instruction i = plan_instruction(kind);
        i.payload = payload;
        i.op = op;
        i.begin = begin;
        i.end = end;
        i.buffer = result_buffer(l);
        i.peer = sibling_peer(l, stage);
        TRY(lower_post(l, queue, i, e));
    }
    return ST_OK;
}

static status_t add_sibling(struct lowering *l, int owner, int use, struct err *e) {
    const struct plan *p = l->p;
    for (int b = plan_bucket_at(p, p->use_begin[owner]); b < p->n_buckets && p->buckets[b].begin < p->use_end[owner];
         b++) {
        if (p->layout.zero == 0 && p->buckets[b].n_shards == 0)
            continue;
        struct instruction i = plan_instruction(INSTRUCTION_ADD_USE);
        i.begin = p->buckets[b].first_shard;
        i.end = i.begin + p->buckets[b].n_shards;
        i.buffer = result_buffer(l);
        i.source = use;
        TRY(plan_emit(compute(l), i, e));
    }
    return ST_OK;
}

static bool is_here(const struct plan *p, int use) { return p->use_stage[use] == plan_stage(&p->layout); }

/* Adds siblings to the owning use, in the order of uses; first receives those of other stages. */
static status_t add_siblings(struct lowering *l, struct err *e) {
    const struct plan *p = l->p;
    const struct graph *g = p->graph;
    const int stage = plan_stage(&p->layout);
    int first = p->queue[QUEUE_GRADIENTS].n;
    for (int i = 0; i < g->n_parameters; i++) {
        int owner = g->parameters[i].first_use;
        for (int s = g->uses[owner].next_use; s >= 0; s = g->uses[s].next_use) {
            if (is_here(p, s) && p->parameter_stage[i] != stage)
                TRY(pass_use(l, INSTRUCTION_SEND, PAYLOAD_GRADIENT, s, s, p->parameter_stage[i], e));
            if (!is_here(p, s) && p->parameter_stage[i] == stage)
                TRY(pass_use(l, INSTRUCTION_RECV, PAYLOAD_GRADIENT, owner, s, p->use_stage[s], e));
        }
    }
    for (int n = first; n < p->queue[QUEUE_GRADIENTS].n; n++)
        TRY(lower_wait(l, QUEUE_GRADIENTS, n, e));
    for (int i = 0; i < g->n_parameters; i++) {
        int owner = g->parameters[i].first_use;
        if (g->uses[owner].next_use < 0 || p->parameter_stage[i] != stage)
            continue;
        for (int s = g->uses[owner].next_use; s >= 0; s = g->uses[s].next_use)
            TRY(add_sibling(l, owner, s, e));
        const int bucket = plan_bucket_at(p, p->use_begin[owner]);
        int end = bucket;
        while (end < p->n_buckets && p->buckets[end].begin < p->use_end[owner])
            end++;
        TRY(emit_shards(l, INSTRUCTION_NORM, bucket, end, e));
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

/* The parameter of a bucket's uses if another stage owns it; else -1. */
static int foreign_parameter(const struct plan *p, int bucket) {
    for (int k = 0; k < p->n_own_uses; k++) {
        int s = p->use_order[k], parameter = p->graph->uses[s].parameter;
        if (p->use_begin[s] <= p->buckets[bucket].begin && p->buckets[bucket].begin < p->use_end[s])
            return p->parameter_stage[parameter] != plan_stage(&p->layout) ? parameter : -1;
    }
    return -1;
}

/* Sends each weight that other stages read to each of them once. */
static status_t return_weights(struct lowering *l, struct err *e) {
    const struct plan *p = l->p;
    const struct graph *g = p->graph;
    const int stage = plan_stage(&p->layout);
    for (int i = 0; i < g->n_parameters; i++) {
        int owner = g->parameters[i].first_use, here = -1;
        for (int s = owner; s >= 0; s = g->uses[s].next_use) {
            bool again = false;
            for (int before = owner; before != s; before = g->uses[before].next_use)
                again |= p->use_stage[before] == p->use_stage[s];
            if (p->parameter_stage[i] == stage && p->use_stage[s] != stage && !again)
                TRY(pass_use(l, INSTRUCTION_SEND, PAYLOAD_WEIGHT, owner, i, p->use_stage[s], e));
            if (here < 0 && is_here(p, s))
                here = s;
        }
        if (p->parameter_stage[i] != stage && here >= 0)
            TRY(pass_use(l, INSTRUCTION_RECV, PAYLOAD_WEIGHT, here, i, p->parameter_stage[i], e));
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

/* One STEP, or whatever writes weights, for all buckets; if buckets are gathered, one for each, so that its gather
 * starts early. */
static status_t emit_steps(struct lowering *l, enum instruction_kind kind, struct err *e) {
    const struct plan *p = l->p;
    for (int b = 0, end; b < p->n_buckets; b = end) {
        end = b + 1;
        if (!is_stepped(p, b))
            continue;
        while (!gathers(p) && end < p->n_buckets && is_stepped(p, end))
            end++;
        TRY(emit_shards(l, kind, b, end, e));
        if (gathers(p) && p->buckets[b].parameter >= 0)
            TRY(lower_gather(l, b, e));
    }
    return ST_OK;
}

/* Writes the shards of weights, and brings the new weights to the ranks that read them. */
static status_t renew_weights(struct lowering *l, enum instruction_kind kind, struct err *e) {
    struct plan *p = l->p;
    TRY(emit_steps(l, kind, e));
    int first = p->queue[QUEUE_ACTIVATIONS].n;
    TRY(return_weights(l, e));
    for (int n = first; n < p->queue[QUEUE_ACTIVATIONS].n; n++)
        TRY(lower_wait(l, QUEUE_ACTIVATIONS, n, e));
    for (int b = 0; gathers(p) && b < p->n_buckets; b++)
        if (foreign_parameter(p, b) >= 0 && p->buckets[b].parameter >= 0)
            TRY(lower_gather(l, b, e));
    if (gathers(p) && p->queue[QUEUE_DATA].n > l->data_waited)
        TRY(lower_wait(l, QUEUE_DATA, p->queue[QUEUE_DATA].n - 1, e));
    return ST_OK;
}

status_t gradients_step(struct lowering *l, struct err *e) {
    TRY(plan_emit(compute(l), plan_instruction(INSTRUCTION_DECIDE), e));
    TRY(renew_weights(l, INSTRUCTION_STEP, e));
    finish_numbers(l);
    return ST_OK;
}

status_t gradients_switch_averages(struct lowering *l, struct err *e) {
    return renew_weights(l, INSTRUCTION_SWITCH_AVERAGES, e);
}
