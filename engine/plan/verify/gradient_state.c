/* A matrix of segments and buffers, whose cells say which lanes and rounds a buffer holds of a segment.
 *
 * At first the uses are cut into segments at the boundaries of buckets and of their parts, so that every instruction
 * handles whole segments. Each instruction then becomes a change of cells, and is refused if a cell is not what the
 * instruction needs:
 *
 *   backward          begins a lane of a round, or adds the next writer of the same micro-batch
 *   add, reduce       joins two halves of a node of the sum tree, or a round and the next one
 *   add use           adds a sibling, such as the other use of a tied embedding, in the order of the graph
 *   norm, step        needs the sum of the whole step with all siblings, once for each segment
 *
 * set_sum is the only function that changes a cell. It also takes and frees the bytes of staged buckets. */
#include "engine/plan/verify/gradient_state.h"

#include "base/array.h"
#include "engine/graph/op.h"
#include "engine/plan/verify/err_plan.h"

#include <stdlib.h>

/* --- segments and cells ---*/

static status_t append(struct gradient_state *l, struct segment s, struct err *e) {
    TRY(array_grow(&l->segments, l->n_segments, e));
    l->segments[l->n_segments++] = s;
    return ST_OK;
}

/* Divides [at, end) of a use, all of it in one bucket, at the boundaries of the bucket's parts. */
static status_t cut_bucket(struct gradient_state *l, int use, int bucket, int64_t at, int64_t end, struct err *e) {
    const struct plan *p = l->plan;
    int64_t from, to;
    plan_own_range(p, bucket, plan_data_rank(&p->layout), &from, &to);
    int low = 0, high = p->layout.data; /* part `low` begins at or before `at`, part `high` behind it */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (plan_part_begin(p, bucket, middle) <= at)
            low = middle;
        else
            high = middle;
    }
    for (int part = high; at < end; part++) {
        int64_t next = part <= p->layout.data ? plan_part_begin(p, bucket, part) : end;
        next = next < end ? next : end;
        if (next <= at)
            continue;
        const struct segment s = {
            .use = use, .bucket = bucket, .begin = at, .end = next, .own = from <= at && next <= to
        };
        TRY(append(l, s, e));
        at = next;
    }
    return ST_OK;
}

static status_t cut_use(struct gradient_state *l, int use, struct err *e) {
    const struct plan *p = l->plan;
    int bucket = plan_bucket_at(p, p->use_begin[use]);
    for (int64_t at = p->use_begin[use]; at < p->use_end[use]; bucket++) {
        int64_t end = p->use_end[use] < p->buckets[bucket].end ? p->use_end[use] : p->buckets[bucket].end;
        TRY(cut_bucket(l, use, bucket, at, end, e));
        at = end;
    }
    return ST_OK;
}

/* A sibling from another stage has the segments of the owning use that it is added to. */
static status_t cut_sibling(struct gradient_state *l, int use, int owner, struct err *e) {
    const struct plan *p = l->plan;
    for (int k = 0; k < l->n_of_use[owner]; k++) {
        struct segment s = l->segments[l->first_segment[owner] + k];
        int64_t shift = p->use_begin[use] - p->use_begin[owner];
        s.use = use;
        s.bucket = -1;
        s.begin += shift;
        s.end += shift;
        TRY(append(l, s, e));
    }
    return ST_OK;
}

status_t gradient_state_init(struct gradient_state *l, const struct plan *p, struct live_set *communication,
                             struct err *e) {
    const struct graph *g = p->graph;
    *l = (struct gradient_state){ .plan = p, .communication = communication };
    TRY(array_new(&l->first_segment, g->n_uses, e));
    TRY(array_new(&l->n_of_use, g->n_uses, e));
    for (int k = 0; k < p->n_own_uses; k++) {
        int s = p->use_order[k];
        l->first_segment[s] = l->n_segments;
        TRY(cut_use(l, s, e));
        l->n_of_use[s] = l->n_segments - l->first_segment[s];
    }
    for (int s = 0; s < g->n_uses; s++) {
        int owner = g->parameters[g->uses[s].parameter].first_use;
        if (p->use_begin[s] < p->gradient_elements || !l->n_of_use[owner])
            continue;
        l->first_segment[s] = l->n_segments;
        TRY(cut_sibling(l, s, owner, e));
        l->n_of_use[s] = l->n_segments - l->first_segment[s];
    }
    l->n_buffers = p->accumulator >= p->lane_buffers ? p->accumulator + 1 : p->lane_buffers;
    TRY(array_new(&l->sums, l->n_buffers * l->n_segments, e));
    TRY(array_new(&l->staged, p->n_buckets, e));
    TRY(array_new(&l->input_done, g->n_reverse, e));
    TRY(array_new(&l->stepped, p->n_shards, e));
    l->norms_known = p->layout.zero ? p->layout.world_size == 1 : p->layout.stages == 1;
    return ST_OK;
}

void gradient_state_done(struct gradient_state *l) {
    free(l->segments);
    free(l->first_segment);
    free(l->n_of_use);
    free(l->sums);
    free(l->staged);
    free(l->input_done);
    free(l->stepped);
}

static const char *name_of(const struct gradient_state *l, int use) {
    const struct graph *g = l->plan->graph;
    return g->parameters[g->uses[use].parameter].name;
}

/* A received sibling has one place for all buffers. */
static struct gradient_sum *sum_of(const struct gradient_state *l, int buffer, int segment) {
    return &l->sums[(l->segments[segment].bucket < 0 ? 0 : buffer) * l->n_segments + segment];
}

/* The only function that changes a segment's sum. A staged bucket takes its bytes with the first gradient in it, and
 * frees them when the last one is gone. */
static status_t set_sum(struct gradient_state *l, int buffer, int segment, struct gradient_sum to, struct err *e) {
    const struct plan *p = l->plan;
    struct gradient_sum *c = sum_of(l, buffer, segment);
    int bucket = l->segments[segment].bucket, was = c->lanes;
    *c = to;
    if (!p->staged || buffer != 0 || bucket < 0 || !was == !to.lanes)
        return ST_OK;
    size_t begin = p->staging_offset[bucket],
           end = begin + (size_t)(p->buckets[bucket].end - p->buckets[bucket].begin) * sizeof(float);
    if (was && --l->staged[bucket] == 0)
        live_set_remove(l->communication, begin, end);
    if (was || l->staged[bucket]++)
        return ST_OK;
    if (end > p->family_bytes[FAMILY_COMMUNICATION])
        return err_plan(e, "the gradients of bucket %d have no place", bucket);
    if (live_set_find(l->communication, begin, end))
        return err_plan(e, "the gradient of %s is written to bytes that are still in use",
                        name_of(l, l->segments[segment].use));
    return live_set_insert(l->communication, begin, end, bucket, e);
}

static status_t check_buffer(const struct gradient_state *l, int buffer, struct err *e) {
    if (buffer >= 0 && buffer < l->n_buffers)
        return ST_OK;
    return err_plan(e, "gradient buffer %d does not exist", buffer);
}

static status_t check_free(const struct gradient_state *l, int buffer, int segment, struct err *e) {
    const struct segment *s = &l->segments[segment];
    if (buffer == l->plan->accumulator && !s->own && s->bucket >= 0)
        return err_plan(e, "the accumulator has no place for another rank's part of %s", name_of(l, s->use));
    if (!sum_of(l, buffer, segment)->transfers)
        return ST_OK;
    return err_plan(e, "the gradient of %s is touched while it is being %s", name_of(l, s->use),
                    s->own && s->bucket < 0 ? "received" : "reduced or sent");
}

/* Segments [*first, *end) are those of [from, to) in gradient space, which must begin and end with a segment. */
static status_t find_segments(const struct gradient_state *l, int64_t from, int64_t to, int *first, int *end,
                              struct err *e) {
    int low = 0, high = l->n_segments;
    while (low < high) {
        int middle = (low + high) / 2;
        if (l->segments[middle].begin >= from)
            high = middle;
        else
            low = middle + 1;
    }
    *first = *end = low;
    if (from >= to)
        return ST_OK;
    while (*end < l->n_segments && l->segments[*end].begin < to)
        ++*end;
    if (*end == *first || l->segments[*first].begin != from || l->segments[*end - 1].end != to)
        return err_plan(e, "the range [%lld, %lld) cuts a gradient in two", (long long)from, (long long)to);
    return ST_OK;
}

static status_t shard_segments(const struct gradient_state *l, int64_t shard, int *first, int *end, struct err *e) {
    const struct plan *p = l->plan;
    if (shard < 0 || shard >= p->n_shards)
        return err_plan(e, "shard %lld does not exist", (long long)shard);
    const struct plan_shard *q = &p->shards[shard];
    int64_t padded = (q->count + PLAN_CHUNK - 1) / PLAN_CHUNK * PLAN_CHUNK;
    return find_segments(l, q->begin, q->begin + padded, first, end, e);
}

static int all_rounds(const struct gradient_state *l) { return l->plan->layout.micro_batches / l->plan->layout.lanes; }

/* Whether every reverse op that writes the use has written the newest micro-batch. */
static bool is_complete(const struct gradient_state *l, const struct gradient_sum *c, int segment) {
    return c->writers == l->plan->use_writers[l->segments[segment].use];
}

static bool is_whole(const struct gradient_state *l, int buffer, int segment) {
    const struct gradient_sum *c = sum_of(l, buffer, segment);
    return c->lane == 0 && c->lanes == l->plan->layout.lanes && c->round == 0 && c->rounds == all_rounds(l) &&
           (l->segments[segment].bucket < 0 || is_complete(l, c, segment));
}

/* --- backward ---*/

static status_t write_segment(struct gradient_state *l, const struct instruction *i, int segment, bool first_writer,
                              struct err *e) {
    const struct plan_layout *layout = &l->plan->layout;
    int lane = i->micro_batch % layout->lanes, round = i->micro_batch / layout->lanes;
    struct gradient_sum c = *sum_of(l, i->buffer, segment);
    TRY(check_free(l, i->buffer, segment, e));
    if (first_writer && i->first)
        return set_sum(l, i->buffer, segment,
                       (struct gradient_sum){
                           .lane = lane, .lanes = 1, .round = round, .rounds = 1, .writers = 1, .last_writer = i->op },
                       e);
    bool follows = first_writer
                       ? is_complete(l, &c, segment) && c.round + c.rounds == round
                       : c.last_writer < i->op && c.round + c.rounds == round + 1 && !is_complete(l, &c, segment);
    if (c.lanes != 1 || c.lane != lane || !follows)
        return err_plan(e, "the gradient of %s from micro-batch %d does not follow the one before it in lane %d",
                        name_of(l, l->segments[segment].use), i->micro_batch, lane);
    c.rounds += first_writer;
    c.writers = first_writer ? 1 : c.writers + 1;
    c.last_writer = i->op;
    return set_sum(l, i->buffer, segment, c, e);
}

/* BACKWARD_WEIGHT reads what BACKWARD_INPUT leaves (op_kind.d_out_scratch), so it must run later. */
static status_t check_order(struct gradient_state *l, const struct instruction *i, struct err *e) {
    const struct op *op = &l->plan->graph->ops[l->plan->graph->reverse[i->op].op];
    if (i->kind == INSTRUCTION_BACKWARD_INPUT) {
        if (i->in_flight != l->input_done[i->op]++)
            return err_plan(e, "micro-batch %d of %s is not the next one", i->micro_batch, op->name);
    } else if (!op->kind->gradient_in_forward && i->in_flight >= l->input_done[i->op]) {
        return err_plan(e, "the weight's gradient of %s comes before its input's", op->name);
    }
    return ST_OK;
}

status_t gradient_state_backward(struct gradient_state *l, const struct instruction *i, struct err *e) {
    int use[OP_PARAMETERS];
    bool first_writer[OP_PARAMETERS];
    TRY(check_order(l, i, e));
    int n = plan_written_uses(l->plan, i, use, first_writer);
    if (n)
        TRY(check_buffer(l, i->buffer, e));
    for (int k = 0; k < n; k++)
        for (int s = 0; s < l->n_of_use[use[k]]; s++)
            TRY(write_segment(l, i, l->first_segment[use[k]] + s, first_writer[k], e));
    return ST_OK;
}

/* --- sums ---*/

/* Whether a and b are the two halves of one node of the tree, of the same rounds. */
static bool is_tree_sum(const struct gradient_state *l, const struct gradient_sum *a, const struct gradient_sum *b) {
    int rounds = l->plan->layout.reduce == PLAN_REDUCE_STEP ? all_rounds(l) : 1;
    return a->lanes && a->lanes == b->lanes && a->lane % (2 * a->lanes) == 0 && b->lane == a->lane + a->lanes &&
           a->round == b->round && a->rounds == rounds && b->rounds == rounds;
}

/* Whether b is the round that follows a, with all lanes. */
static bool is_round_sum(const struct gradient_state *l, const struct gradient_sum *a, const struct gradient_sum *b) {
    return l->plan->layout.reduce == PLAN_REDUCE_MICRO_BATCH && a->lanes == l->plan->layout.lanes &&
           b->lanes == a->lanes && b->rounds == 1 && b->round == a->round + a->rounds;
}

static status_t add_segment(struct gradient_state *l, const struct instruction *i, int s, struct err *e) {
    TRY(check_free(l, i->buffer, s, e));
    TRY(check_free(l, i->source, s, e));
    struct gradient_sum a = *sum_of(l, i->buffer, s), b = *sum_of(l, i->source, s);
    const char *name = name_of(l, l->segments[s].use);
    if (!b.lanes || !is_complete(l, &b, s) || (!i->first && !is_complete(l, &a, s)))
        return err_plan(e, "the gradient of %s is added before it is complete", name);
    if (i->first)
        a = b;
    else if (is_tree_sum(l, &a, &b))
        a.lanes *= 2;
    else if (is_round_sum(l, &a, &b))
        a.rounds++;
    else
        return err_plan(e,
                        "the gradient of %s: lanes %d..%d are added to lanes %d..%d, which is not a node of the tree",
                        name, b.lane, b.lane + b.lanes - 1, a.lane, a.lane + a.lanes - 1);
    TRY(set_sum(l, i->buffer, s, a, e));
    return set_sum(l, i->source, s, (struct gradient_sum){ 0 }, e);
}

status_t gradient_state_add(struct gradient_state *l, const struct instruction *i, struct err *e) {
    int first, end;
    TRY(check_buffer(l, i->buffer, e));
    TRY(check_buffer(l, i->source, e));
    if (i->buffer == i->source)
        return err_plan(e, "gradient buffer %d is added to itself", i->buffer);
    TRY(find_segments(l, i->begin, i->end, &first, &end, e));
    for (int s = first; s < end; s++)
        TRY(add_segment(l, i, s, e));
    return ST_OK;
}

/* The position of a sibling behind the owning use; -1: it is none of its siblings. */
static int sibling_number(const struct graph *g, int owner, int use) {
    int n = 0;
    for (int s = g->uses[owner].next_use; s >= 0; s = g->uses[s].next_use, n++)
        if (s == use)
            return n;
    return -1;
}

static status_t check_whole(const struct gradient_state *l, int buffer, int segment, struct err *e) {
    TRY(check_free(l, buffer, segment, e));
    if (is_whole(l, buffer, segment))
        return ST_OK;
    return err_plan(e, "the gradient of %s is used before the whole step is in it",
                    name_of(l, l->segments[segment].use));
}

static status_t add_sibling(struct gradient_state *l, const struct instruction *i, int segment, struct err *e) {
    const struct plan *p = l->plan;
    struct segment *to = &l->segments[segment];
    int number = sibling_number(p->graph, to->use, i->source);
    if (number < 0 || !l->n_of_use[i->source])
        return err_plan(e, "uses of two parameters are added");
    if (number != to->added)
        return err_plan(e, "the uses of %s are not added once each, in their order", name_of(l, to->use));
    int64_t shift = p->use_begin[i->source] - p->use_begin[to->use];
    int first, end;
    TRY(find_segments(l, to->begin + shift, to->end + shift, &first, &end, e));
    TRY(check_whole(l, i->buffer, segment, e));
    for (int s = first; s < end; s++) {
        TRY(check_whole(l, i->buffer, s, e));
        l->segments[s].done = true;
        if (l->segments[s].bucket >= 0)
            continue;
        struct plan_place place = plan_gradient_place(p, i->buffer, l->segments[s].begin);
        live_set_remove(l->communication, place.offset,
                        place.offset + 1); /* the received gradient may be overwritten now */
        *sum_of(l, i->buffer, s) = (struct gradient_sum){ 0 };
    }
    to->added++;
    return ST_OK;
}

status_t gradient_state_add_use(struct gradient_state *l, const struct instruction *i, struct err *e) {
    if (i->source < 0 || i->source >= l->plan->graph->n_uses || i->buffer != l->plan->result)
        return err_plan(e, "no such use is added in the buffer of the step's sum");
    for (int64_t shard = i->begin; shard < i->end; shard++) {
        int first, end;
        TRY(shard_segments(l, shard, &first, &end, e));
        for (int s = first; s < end; s++)
            TRY(add_sibling(l, i, s, e));
    }
    return ST_OK;
}

/* --- reductions and transfers ---*/

status_t gradient_state_reduce(struct gradient_state *l, const struct instruction *i, struct err *e) {
    const struct plan *p = l->plan;
    const struct plan_layout *layout = &p->layout;
    int own = layout->lanes / layout->data, first, end;
    TRY(check_buffer(l, i->buffer, e));
    if (i->entry < 0 || i->entry >= p->n_buckets || i->begin != p->buckets[i->entry].begin ||
        i->end != p->buckets[i->entry].end)
        return err_plan(e, "[%lld, %lld) is not bucket %d", (long long)i->begin, (long long)i->end, i->entry);
    TRY(find_segments(l, i->begin, i->end, &first, &end, e));
    for (int s = first; s < end; s++) {
        TRY(check_free(l, i->buffer, s, e));
        struct gradient_sum *c = sum_of(l, i->buffer, s);
        if (c->lanes != own || c->lane != plan_data_rank(layout) * own || !is_complete(l, c, s) ||
            c->rounds != (layout->reduce == PLAN_REDUCE_STEP ? all_rounds(l) : 1))
            return err_plan(e, "the gradient of %s is reduced before all of the rank's lanes are in",
                            name_of(l, l->segments[s].use));
        c->transfers++;
    }
    return ST_OK;
}

status_t gradient_state_reduced(struct gradient_state *l, const struct instruction *i, struct err *e) {
    int first, end;
    TRY(find_segments(l, i->begin, i->end, &first, &end, e));
    for (int s = first; s < end; s++) {
        struct gradient_sum c = *sum_of(l, i->buffer, s);
        c.transfers--;
        c.lane = 0;
        c.lanes = l->plan->layout.lanes;
        TRY(set_sum(l, i->buffer, s, l->segments[s].own ? c : (struct gradient_sum){ 0 }, e));
    }
    return ST_OK;
}

/* The segments of elements [begin, end) of a use, with padding. */
static status_t transfer_segments(const struct gradient_state *l, const struct instruction *i, int *first, int *end,
                                  struct err *e) {
    const struct plan *p = l->plan;
    if (i->op < 0 || i->op >= p->graph->n_uses || !l->n_of_use[i->op])
        return err_plan(e, "no such use is here");
    int64_t padded = (i->end + PLAN_CHUNK - 1) / PLAN_CHUNK * PLAN_CHUNK;
    return find_segments(l, p->use_begin[i->op] + i->begin, p->use_begin[i->op] + padded, first, end, e);
}

static status_t receive_sibling(struct gradient_state *l, const struct instruction *i, int first, int end,
                                struct err *e) {
    struct plan_place place = plan_gradient_place(l->plan, i->buffer, l->segments[first].begin);
    size_t n = (size_t)(l->segments[end - 1].end - l->segments[first].begin) * sizeof(float);
    if (place.family != FAMILY_COMMUNICATION || place.offset == SIZE_MAX ||
        place.offset + n > l->plan->family_bytes[FAMILY_COMMUNICATION] ||
        live_set_find(l->communication, place.offset, place.offset + n))
        return err_plan(e, "the gradient of %s is received into bytes that are in use or outside the family",
                        name_of(l, i->op));
    for (int s = first; s < end; s++) { /* one range for each, because they are used one by one */
        size_t from = place.offset + (size_t)(l->segments[s].begin - l->segments[first].begin) * sizeof(float);
        const size_t to = from + (size_t)(l->segments[s].end - l->segments[s].begin) * sizeof(float);
        TRY(live_set_insert(l->communication, from, to, i->op, e));
    }
    return ST_OK;
}

status_t gradient_state_post(struct gradient_state *l, const struct instruction *i, struct err *e) {
    const struct plan *p = l->plan;
    int first, end;
    if (i->begin >= i->end)
        return ST_OK;
    TRY(transfer_segments(l, i, &first, &end, e));
    bool lands = l->segments[first].bucket < 0;
    if (lands != (i->kind == INSTRUCTION_RECV))
        return err_plan(e, "the gradient of %s is sent in the wrong direction", name_of(l, i->op));
    if (lands)
        TRY(receive_sibling(l, i, first, end, e));
    for (int s = first; s < end; s++) {
        struct gradient_sum *c = sum_of(l, i->buffer, s);
        if (!lands) {
            TRY(check_whole(l, i->buffer, s, e));
            if (i->buffer != p->result || !l->segments[s].own || l->segments[s].done)
                return err_plan(e, "the gradient of %s is not sent once, by the rank that holds all of it",
                                name_of(l, i->op));
            l->segments[s].done = true;
        }
        c->transfers++;
    }
    return ST_OK;
}

void gradient_state_transferred(struct gradient_state *l, const struct instruction *i) {
    int first, end;
    struct err ignored;
    if (i->begin >= i->end || transfer_segments(l, i, &first, &end, &ignored) != ST_OK)
        return;
    for (int s = first; s < end; s++) {
        struct gradient_sum *c = sum_of(l, i->buffer, s);
        c->transfers--;
        if (i->kind == INSTRUCTION_RECV)
            *c = (struct gradient_sum){ .lanes = l->plan->layout.lanes, .rounds = all_rounds(l) };
    }
}

/* --- the step ---*/

static bool is_owner(const struct graph *g, int use) { return g->parameters[g->uses[use].parameter].first_use == use; }

static int siblings(const struct graph *g, int owner) {
    int n = 0;
    for (int s = g->uses[owner].next_use; s >= 0; s = g->uses[s].next_use)
        n++;
    return n;
}

static bool is_statistic(const struct gradient_state *l, int use) {
    const struct graph *g = l->plan->graph;
    return g->parameters[g->uses[use].parameter].kind == PARAMETER_STATISTIC;
}

/* Whether a segment is what norms and steps read: an owning use with all its siblings, of the whole step. */
static bool is_final(const struct gradient_state *l, int buffer, int segment) {
    const struct segment *s = &l->segments[segment];
    const struct graph *g = l->plan->graph;
    return buffer == l->plan->result && s->own && is_owner(g, s->use) && s->added == siblings(g, s->use) &&
           is_whole(l, buffer, segment);
}

status_t gradient_state_norm(struct gradient_state *l, const struct instruction *i, struct err *e) {
    for (int64_t shard = i->begin; shard < i->end; shard++) {
        int first, end;
        TRY(shard_segments(l, shard, &first, &end, e));
        for (int s = first; s < end; s++) {
            struct segment *segment = &l->segments[s];
            if (is_statistic(l, segment->use))
                continue;
            TRY(check_free(l, i->buffer, s, e));
            if (!is_final(l, i->buffer, s) || segment->done)
                return err_plan(e, "the norm of %s is not taken once, over the first use, after the whole step",
                                name_of(l, segment->use));
            segment->done = true;
        }
    }
    return ST_OK;
}

status_t gradient_state_check_norms(const struct gradient_state *l, struct err *e) {
    for (int s = 0; s < l->n_segments; s++) {
        const struct segment *segment = &l->segments[s];
        if (segment->own && segment->bucket >= 0 && is_owner(l->plan->graph, segment->use) && !segment->done &&
            !is_statistic(l, segment->use))
            return err_plan(e, "the norm leaves out %s", name_of(l, segment->use));
    }
    return ST_OK;
}

status_t gradient_state_decide(struct gradient_state *l, struct err *e) {
    TRY(gradient_state_check_norms(l, e));
    if (!l->norms_known)
        return err_plan(e, "the norm is decided on before the other ranks' sums are in");
    if (l->decided)
        return err_plan(e, "a step is decided on once");
    l->decided = true;
    return ST_OK;
}

status_t gradient_state_step(struct gradient_state *l, const struct instruction *i, struct err *e) {
    for (int64_t shard = i->begin; shard < i->end; shard++) {
        int first, end;
        TRY(shard_segments(l, shard, &first, &end, e));
        int use = l->plan->shards[shard].use;
        if (!l->decided || l->stepped[shard])
            return err_plan(e, "%s is not stepped once, after the decision", name_of(l, use));
        l->stepped[shard] = true;
        for (int s = first; s < end; s++) {
            TRY(check_free(l, i->buffer, s, e));
            if (!is_final(l, i->buffer, s))
                return err_plan(e, "%s is stepped without the gradient of the whole step", name_of(l, use));
        }
    }
    return ST_OK;
}

status_t gradient_state_end(const struct gradient_state *l, struct err *e) {
    for (int i = 0; i < l->plan->n_shards; i++)
        if (!l->stepped[i])
            return err_plan(e, "%s is never stepped", name_of(l, l->plan->shards[i].use));
    return ST_OK;
}
