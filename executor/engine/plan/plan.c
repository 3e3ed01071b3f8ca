#include "executor/engine/plan/plan.h"

#include "executor/engine/graph/op.h"
#include "executor/engine/optimizer/optimizer.h"
#include "executor/engine/plan/build.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { VIRTUAL_STAGES_MOST = 16 };

static bool power_of_two(int n) { return n > 0 && !(n & (n - 1)); }

/* --- layouts that cannot be ---*/

static status_t check_counts(const struct plan_layout *l, struct err *e) {
    if (l->micro_batches < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "train.global_batch: a step needs at least one micro-batch");
    if (!power_of_two(l->lanes) || l->micro_batches % l->lanes)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "train.lanes: %d is not a power of two that divides the step's %d micro-batches", l->lanes,
                       l->micro_batches);
    if (l->data < 1 || l->lanes % l->data)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel.data: %d does not divide train.lanes %d", l->data, l->lanes);
    if (l->stages < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel.pipeline: %d is less than 1", l->stages);
    return ST_OK;
}

static status_t check_pipeline(const struct plan_layout *l, struct err *e) {
    const struct schedule_kind *schedule = schedule_of(l->schedule);
    if (l->virtual_stages < 1 || l->virtual_stages > VIRTUAL_STAGES_MOST)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel.virtual_stages: %d is not in 1..%d", l->virtual_stages,
                       VIRTUAL_STAGES_MOST);
    if (l->virtual_stages > 1 && (l->stages == 1 || !schedule->interleaves))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "parallel.virtual_stages: %d need parallel.pipeline over 1 and parallel.schedule interleaved",
                       l->virtual_stages);
    return ST_OK;
}

static status_t check_zero(const struct plan_layout *l, struct err *e) {
    if (l->zero < 0 || l->zero > 3)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel.zero: %d is not in 0..3", l->zero);
    if (l->zero >= 2 && l->stages > 1)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "parallel.zero: %d with parallel.pipeline %d: a stage would scatter its gradients%s once a "
                       "micro-batch instead of once a step; use parallel.zero 1",
                       l->zero, l->stages, l->zero == 3 ? " and gather its weights" : "");
    if (l->zero == 3 && l->optimizer && l->optimizer->whole_tensor)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "train.optimizer: %s steps whole tensors, and parallel.zero 3 has only parts of them; use "
                       "parallel.zero 2 or less",
                       l->optimizer->name);
    return ST_OK;
}

static status_t resolve(const struct plan_layout *from, struct plan_layout *to, struct err *e) {
    *to = *from;
    to->data = to->data ? to->data : 1;
    to->stages = to->stages ? to->stages : 1;
    to->virtual_stages = to->virtual_stages ? to->virtual_stages : 1;
    TRY(check_counts(to, e));
    TRY(check_pipeline(to, e));
    TRY(check_zero(to, e));
    if (to->data == 1)
        to->zero = 0;
    if (to->fast && (to->lanes > to->data || to->zero < 2)) {
        to->lanes = to->data;
        to->reduce = PLAN_REDUCE_STEP;
    }
    if (to->stages == 1) /* every schedule is the same then */
        to->schedule = SCHEDULE_1F1B;
    to->world_size = to->data * to->stages;
    assert(to->rank >= 0 && to->rank < to->world_size && to->bucket_bytes > 0);
    return ST_OK;
}

/* --- building ---*/

static void mark(bool *set, int tensor) {
    if (tensor >= 0)
        set[tensor] = true;
}

/* What crosses ranks; and storages, which end at what was received. */
static void find_storage(struct building *b) {
    struct plan *p = b->plan;
    const struct graph *g = p->graph;
    const bool train = p->layout.kind == PLAN_TRAIN;
    for (int c = 0; c < p->layout.virtual_stages; c++) {
        mark(b->received, p->chunks[c].input);
        mark(b->sent, p->chunks[c].output);
        if (train) {
            mark(b->received, p->chunks[c].d_output);
            mark(b->sent, p->chunks[c].d_input);
        }
    }
    for (int t = 0; t < g->n_tensors; t++)
        p->storage[t] = g->tensors[t].alias_of < 0 || b->received[t] ? t : p->storage[g->tensors[t].alias_of];
    for (int i = 0; i < g->n_ops; i++)
        for (int k = 0; k < OP_INPUTS; k++) {
            int t = g->ops[i].in[k];
            bool loss = p->layout.kind == PLAN_SAMPLE && g->ops[i].out[0] == g->losses;
            if (t >= 0 && g->tensors[t].role == TENSOR_BATCH && p->block_chunk[g->ops[i].block] >= 0 && !loss)
                p->loaded[t] = true;
        }
}

/* What KEEP fills has bytes of its own. */
static status_t keep_storage(struct plan *p, struct err *e) {
    int *storage = NULL;
    TRY(array_new(&storage, p->n_tensors, e));
    memcpy(storage, p->storage, (size_t)p->graph->n_tensors * sizeof *storage);
    for (int t = p->graph->n_tensors; t < p->n_tensors; t++)
        storage[t] = t;
    free(p->storage);
    p->storage = storage;
    return ST_OK;
}

static status_t build(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    const struct graph *g = p->graph;
    for (int kind = 0; kind < PHASE_KINDS; kind++)
        TRY(array_new(&b->programs[kind], p->layout.virtual_stages, e));
    TRY(array_new(&b->received, g->n_tensors, e));
    TRY(array_new(&b->sent, g->n_tensors, e));
    TRY(array_new(&b->kept, g->n_tensors, e));
    b->schedule = schedule_of(p->layout.schedule);
    b->splits_weight = p->layout.kind == PLAN_TRAIN && p->layout.stages > 1 && b->schedule->splits_weight;
    TRY(plan_cut_stages(b, e));
    TRY(plan_lay_out(b, e));
    TRY(schedule_order(&p->layout, &b->phases, e));
    for (int c = 0; c < p->layout.virtual_stages; c++)
        p->chunks[c].flights = p->layout.kind == PLAN_TRAIN
                                   ? schedule_flights(&b->phases, c, PHASE_FORWARD,
                                                      b->splits_weight ? PHASE_WEIGHT : PHASE_BACKWARD)
                                   : 1;
    TRY(array_new(&p->storage, g->n_tensors, e));
    TRY(array_new(&p->loaded, g->n_tensors, e));
    TRY(array_new(&p->kept, g->n_reverse, e));
    for (int r = 0; r < g->n_reverse; r++)
        p->kept[r] = -1;
    p->n_tensors = g->n_tensors;
    find_storage(b);
    TRY(plan_write_programs(b, e));
    TRY(keep_storage(p, e));
    TRY(plan_place_tensors(b, e));
    TRY(plan_lower(b, e));
    return plan_place_transit(b, e);
}

static void building_done(struct building *b, int chunks) {
    phase_list_done(&b->phases);
    for (int kind = 0; kind < PHASE_KINDS; kind++) {
        for (int c = 0; b->programs[kind] && c < chunks; c++)
            free(b->programs[kind][c].items);
        free(b->programs[kind]);
    }
    free(b->received);
    free(b->sent);
    free(b->kept);
    free(b->alive);
}

status_t plan_build(const struct graph *graph, const struct plan_layout *layout, struct plan **ret, struct err *e) {
    CLEANUP(plan_freep) struct plan *p = NULL;
    TRY(array_new(&p, 1, e));
    TRY(resolve(layout, &p->layout, e));
    p->graph = graph;
    struct building b = { .plan = p };
    status_t st = build(&b, e);
    building_done(&b, p->layout.virtual_stages);
    if (st == ST_OK)
        *ret = take_ptr(&p);
    return st;
}

struct plan *plan_free(struct plan *p) {
    if (!p)
        return NULL;
    for (int q = 0; q < QUEUES; q++)
        free(p->queue[q].items);
    for (int b = 0; b < p->n_buckets; b++)
        free(p->buckets[b].cut);
    for (int life = 0; life < LIVES; life++)
        free(p->tensors[life]);
    free(p->chunks);
    free(p->block_stage);
    free(p->block_chunk);
    free(p->slot_begin);
    free(p->slot_end);
    free(p->slot_order);
    free(p->slot_writers);
    free(p->slot_stage);
    free(p->parameter_begin);
    free(p->parameter_stage);
    free(p->parameter_norm);
    free(p->buckets);
    free(p->pieces);
    free(p->loaded);
    free(p->storage);
    free(p->kept);
    free(p->kept_of);
    free(p->arrival_offset);
    free(p->unit_offset);
    free(p->staging_offset);
    free(p->landing_offset);
    free(p->accumulator_offset);
    free(p->slot_first);
    free(p);
    return NULL;
}

/* --- who does what ---*/

int plan_stage(const struct plan_layout *l) { return l->rank / l->data; }
int plan_data_rank(const struct plan_layout *l) { return l->rank % l->data; }
int plan_own_micro_batches(const struct plan_layout *l) { return l->micro_batches / l->data; }

int plan_owner(const struct plan_layout *l, int k) {
    int d = l->kind == PLAN_TRAIN ? k % l->lanes / (l->lanes / l->data) : k % l->data;
    return (l->stages - 1) * l->data + d;
}

int plan_micro_batch(const struct plan_layout *l, int d, int q) {
    if (l->kind != PLAN_TRAIN)
        return q * l->data + d;
    int own = l->lanes / l->data, rounds = l->micro_batches / l->lanes;
    if (l->reduce == PLAN_REDUCE_STEP)
        return q % rounds * l->lanes + d * own + q / rounds;
    return q / own * l->lanes + d * own + q % own;
}

int plan_part(const struct plan_layout *l, int d) {
    int j = 0;
    for (int bit = 1; bit < l->data; bit *= 2, d /= 2)
        j = j * 2 + d % 2;
    return j;
}

bool plan_loads(const struct plan *p, int tensor) { return p->loaded[tensor]; }

/* --- places ---*/

struct plan_place plan_tensor_place(const struct plan *p, int t, int flight, enum plan_life life) {
    const struct tensor_place *at = &p->tensors[life][t];
    bool batch = t < p->graph->n_tensors && p->graph->tensors[t].role == TENSOR_BATCH;
    struct plan_place place = { .family = batch ? FAMILY_BATCH : FAMILY_ACTIVATIONS, .offset = at->offset };
    if (at->offset != SIZE_MAX && flight > 0)
        place.offset += (size_t)(flight % at->copies) * at->stride;
    return place;
}

struct plan_place plan_arrival_place(const struct plan *p, int t) {
    return (struct plan_place){ FAMILY_BATCH, p->arrival_offset[t] };
}

size_t plan_tensor_bytes(const struct plan *p, int t) {
    if (t >= p->graph->n_tensors)
        t = p->graph->reverse[p->kept_of[t - p->graph->n_tensors]].d_out[0];
    return graph_tensor_bytes(p->graph, t);
}

enum plan_life instruction_life(const struct plan *p, const struct instruction *i) {
    if (i->kind == INSTRUCTION_LOAD || i->kind == INSTRUCTION_FORWARD)
        return LIFE_FORWARD;
    if (i->kind == INSTRUCTION_SEND || i->kind == INSTRUCTION_RECV)
        return i->what == WHAT_TENSOR && p->graph->tensors[i->op].role == TENSOR_ACTIVATION ? LIFE_FORWARD
                                                                                            : LIFE_BACKWARD;
    return LIFE_BACKWARD;
}

int plan_bucket_at(const struct plan *p, int64_t at) {
    int low = 0, high = p->n_buckets;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (p->buckets[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->n_buckets && p->buckets[low].begin <= at ? low : -1;
}

static struct plan_place landing_place(const struct plan *p, int64_t at) {
    for (int s = 0; s < p->graph->n_slots; s++)
        if (p->slot_begin[s] <= at && at < p->slot_end[s])
            return (struct plan_place){ FAMILY_COMMUNICATION,
                                        p->landing_offset[s] + (size_t)(at - p->slot_begin[s]) * sizeof(float) };
    return (struct plan_place){ FAMILY_COMMUNICATION, SIZE_MAX };
}

struct plan_place plan_gradient_place(const struct plan *p, int buffer, int64_t at) {
    if (at >= p->gradient_elements)
        return landing_place(p, at);
    if (buffer != p->accumulator && !(p->staged && buffer == 0))
        return (struct plan_place){ FAMILY_GRADIENTS, (size_t)(buffer * p->gradient_elements + at) * sizeof(float) };
    int b = plan_bucket_at(p, at);
    if (b < 0)
        return (struct plan_place){ FAMILY_GRADIENTS, SIZE_MAX };
    if (buffer != p->accumulator)
        return (struct plan_place){ FAMILY_COMMUNICATION,
                                    p->staging_offset[b] + (size_t)(at - p->buckets[b].begin) * sizeof(float) };
    int64_t begin, end;
    plan_own_range(p, b, plan_data_rank(&p->layout), &begin, &end);
    return (struct plan_place){ FAMILY_GRADIENTS, at < begin || at >= end ? SIZE_MAX
                                                                          : p->accumulator_offset[b] +
                                                                                (size_t)(at - begin) * sizeof(float) };
}

struct plan_place plan_parameter_place(const struct plan *p, int parameter) {
    const struct graph *g = p->graph;
    size_t element = dtype_bytes(g->element);
    if (p->layout.zero < 3)
        return (struct plan_place){ FAMILY_PARAMETERS, p->parameter_begin[parameter] < 0
                                                           ? SIZE_MAX
                                                           : (size_t)p->parameter_begin[parameter] * element };
    int64_t at = p->slot_begin[g->parameters[parameter].first_slot];
    int b = plan_bucket_at(p, at);
    if (b < 0 || p->unit_offset[b] == SIZE_MAX)
        return (struct plan_place){ FAMILY_COMMUNICATION, SIZE_MAX };
    return (struct plan_place){ FAMILY_COMMUNICATION,
                                p->unit_offset[b] + (size_t)(at - p->buckets[b].begin) * element };
}

void plan_gather_places(const struct plan *p, int bucket, struct plan_place *to, struct plan_place *own) {
    const struct plan_bucket *b = &p->buckets[bucket];
    size_t element = dtype_bytes(p->graph->element);
    int64_t begin, end;
    plan_own_range(p, bucket, plan_data_rank(&p->layout), &begin, &end);
    if (p->layout.zero == 3) {
        *to = (struct plan_place){ FAMILY_COMMUNICATION, p->unit_offset[bucket] };
        *own = (struct plan_place){ FAMILY_PARAMETERS, (size_t)b->own_weight * element };
        return;
    }
    *to = (struct plan_place){ FAMILY_PARAMETERS, (size_t)b->parameter * element };
    *own = (struct plan_place){ FAMILY_PARAMETERS, (size_t)(b->parameter + begin - b->begin) * element };
}

struct plan_place plan_weight_place(const struct plan *p, const struct plan_piece *piece) {
    return (struct plan_place){ FAMILY_PARAMETERS, (size_t)piece->weight * dtype_bytes(p->graph->element) };
}

int64_t plan_cut(const struct plan *p, int bucket, int j) {
    const struct plan_bucket *b = &p->buckets[bucket];
    int64_t chunks = (b->end - b->begin) / PLAN_CHUNK;
    return b->begin + (b->cut ? b->cut[j] : (chunks * j + b->rotation) / p->layout.data) * PLAN_CHUNK;
}

void plan_own_range(const struct plan *p, int bucket, int d, int64_t *begin, int64_t *end) {
    if (p->layout.zero == 0) {
        *begin = p->buckets[bucket].begin;
        *end = p->buckets[bucket].end;
        return;
    }
    int j = plan_part(&p->layout, d);
    *begin = plan_cut(p, bucket, j);
    *end = plan_cut(p, bucket, j + 1);
}

size_t plan_chunk_sum_bytes(const struct plan *p) { return plan_aligned((size_t)p->norm_chunks * sizeof(double)); }
