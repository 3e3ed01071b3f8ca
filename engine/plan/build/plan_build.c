/* Checks a layout, resolves its zeros, and runs the steps of building.h in their order. */
#include "engine/plan/build/plan_build.h"

#include "base/limits.h"
#include "engine/graph/op.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/build/building.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool power_of_two(int n) { return n > 0 && !(n & (n - 1)); }

/* --- impossible layouts ---*/

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
    assert(l->kind != PLAN_AVERAGE || (l->ema && l->optimizer));
    return ST_OK;
}

static status_t check_pipeline(const struct plan_layout *l, struct err *e) {
    const struct schedule_kind *schedule = schedule_of(l->schedule);
    if (l->virtual_stages < 1 || l->virtual_stages > LIMIT_VIRTUAL_STAGES)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel.virtual_stages: %d is not in 1..%d", l->virtual_stages,
                       LIMIT_VIRTUAL_STAGES);
    if (l->virtual_stages > 1 && (l->stages == 1 || !schedule->interleaves))
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "parallel.virtual_stages: %d need parallel.pipeline over 1 and parallel.pipeline_schedule interleaved",
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
    to->schedule = to->stages == 1 ? &schedule_1f1b /* every schedule is the same then */ : schedule_of(to->schedule);
    to->world_size = to->data * to->stages;
    assert(to->rank >= 0 && to->rank < to->world_size && to->bucket_bytes > 0);
    return ST_OK;
}

/* --- building ---*/

static void mark(bool *set, const struct plan_boundary *boundary) {
    for (int k = 0; k < boundary->n; k++)
        set[boundary->tensor[k]] = true;
}

/* Marks the tensors that cross ranks, and finds storages. A received tensor has its own storage on this rank. */
static void find_storage(struct building *b) {
    struct plan *p = b->plan;
    const struct graph *g = p->graph;
    for (int c = 0; c < p->layout.virtual_stages; c++) {
        for (int way = 0; way < plan_ways(&p->layout); way++) {
            mark(b->received, &p->virtual_stages[c].receive[way]);
            mark(b->sent, &p->virtual_stages[c].send[way]);
        }
    }
    for (int t = 0; t < g->n_tensors; t++)
        p->storage[t] = g->tensors[t].alias_of < 0 || b->received[t] ? t : p->storage[g->tensors[t].alias_of];
    for (int i = 0; i < g->n_ops && p->layout.kind != PLAN_AVERAGE; i++)
        for (int k = 0; k < OP_INPUTS; k++) {
            int t = g->ops[i].in[k];
            bool loss = p->layout.kind == PLAN_SAMPLE && g->ops[i].kind->gradient_in_forward;
            if (t >= 0 && g->tensors[t].role == TENSOR_BATCH && p->block_virtual_stage[g->ops[i].block] >= 0 && !loss)
                p->loaded[t] = true;
        }
}

/* What COPY_GRADIENT fills has bytes of its own. */
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
    TRY(array_new(&b->last_block, g->n_tensors, e));
    TRY(array_new(&b->received, g->n_tensors, e));
    TRY(array_new(&b->sent, g->n_tensors, e));
    TRY(array_new(&b->stored, g->n_tensors, e));
    b->schedule = p->layout.schedule;
    b->splits_weight = p->layout.kind == PLAN_TRAIN && p->layout.stages > 1 && b->schedule->splits_weight;
    TRY(plan_cut_stages(b, e));
    TRY(plan_lay_out_gradients(b, e));
    TRY(schedule_order(&p->layout, &b->phases, e));
    for (int c = 0; c < p->layout.virtual_stages; c++)
        p->virtual_stages[c].max_in_flight = p->layout.kind == PLAN_TRAIN
                                                 ? schedule_max_in_flight(&b->phases, c, PHASE_FORWARD,
                                                                          b->splits_weight ? PHASE_WEIGHT
                                                                                           : PHASE_BACKWARD)
                                                 : 1;
    TRY(array_new(&p->storage, g->n_tensors, e));
    TRY(array_new(&p->loaded, g->n_tensors, e));
    TRY(array_new(&p->gradient_copy, g->n_reverse, e));
    for (int r = 0; r < g->n_reverse; r++)
        p->gradient_copy[r] = -1;
    p->n_tensors = g->n_tensors;
    find_storage(b);
    TRY(plan_write_programs(b, e));
    TRY(keep_storage(p, e));
    TRY(plan_place_tensors(b, e));
    TRY(plan_lower(b, e));
    return plan_place_communication(b, e);
}

static void building_done(struct building *b, int virtual_stages) {
    phase_list_done(&b->phases);
    for (int kind = 0; kind < PHASE_KINDS; kind++) {
        for (int c = 0; b->programs[kind] && c < virtual_stages; c++)
            free(b->programs[kind][c].items);
        free(b->programs[kind]);
    }
    free(b->last_block);
    free(b->received);
    free(b->sent);
    free(b->stored);
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
