/* Mistakes that one rank can make by itself. */
#include "tests/engine/broken_plans.h"

#include "executor/engine/graph/op.h"
#include "executor/engine/model/gpt.h"
#include "executor/engine/optimizer/optimizer.h"
#include "executor/engine/plan/plan.h"
#include "executor/engine/plan/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* --- ways to break a plan: false = this layout has nothing to break so ---*/

static bool read_before_write(struct gang *g) {
    struct instruction *i = find_compute(g->plans[0], INSTRUCTION_FORWARD, 3);
    if (i[1].kind != INSTRUCTION_FORWARD)
        return false;
    swap(i, i + 1);
    return true;
}

static bool two_live_tensors_in_one_place(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int o = 0; o < g->graph->n_ops; o++) {
        const struct op *op = &g->graph->ops[o];
        if (op->kind != &op_attention || p->block_chunk[op->block] < 0)
            continue;
        /* Its input takes the place of what runs beside it: the residual stream. */
        const struct block *b = &g->graph->blocks[op->block];
        int stream = p->storage[g->graph->ops[b->first_op].in[0]];
        struct tensor_place *mine = p->tensors[LIFE_FORWARD], *back = p->tensors[LIFE_BACKWARD];
        bool once = back[op->in[0]].offset == mine[op->in[0]].offset;
        mine[op->in[0]].offset = mine[stream].offset;
        if (once)
            back[op->in[0]].offset = mine[stream].offset;
        return true;
    }
    return false;
}

static bool output_over_its_input(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int o = 0; o < g->graph->n_ops; o++) {
        const struct op *op = &g->graph->ops[o];
        if (op->kind != &op_linear || p->block_chunk[op->block] < 0 || p->storage[op->in[0]] == p->storage[op->out[0]])
            continue;
        for (int l = 0; l < LIVES; l++)
            if (p->tensors[l][op->out[0]].offset != SIZE_MAX) {
                p->tensors[l][op->out[0]].offset = p->tensors[l][op->in[0]].offset;
                p->tensors[l][op->out[0]].copies = 1;
            }
        return true;
    }
    return false;
}

static bool tensor_outside_its_family(struct gang *g) {
    g->plans[g->n - 1]->family_bytes[FAMILY_ACTIVATIONS] -= PLAN_ALIGN;
    return true;
}

/* One copy where several micro-batches need their own. */
static bool too_few_copies(struct gang *g) {
    bool any = false;
    struct plan *p = g->plans[0];
    for (int l = 0; l < LIVES; l++)
        for (int t = 0; t < p->n_tensors; t++)
            if (p->tensors[l][t].copies > 1) {
                p->tensors[l][t].copies = 1;
                any = true;
            }
    return any;
}

static bool copies_that_overlap(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int t = 0; t < p->n_tensors; t++)
        if (p->tensors[LIFE_FORWARD][t].copies > 1) {
            p->tensors[LIFE_FORWARD][t].stride /= 2;
            return true;
        }
    return false;
}

static bool no_recompute(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_compute(p, INSTRUCTION_RECOMPUTE, 1);
    if (i)
        drop(p, i);
    return i;
}

static bool recompute_of_another_micro_batch(struct gang *g) {
    struct plan *p = g->plans[0];
    if (plan_own_micro_batches(&p->layout) < 2)
        return false;
    struct instruction *i = find_compute(p, INSTRUCTION_RECOMPUTE, 0);
    if (i) {
        i->flight = !i->flight;
        i->micro_batch = plan_micro_batch(&p->layout, 0, i->flight);
    }
    return i;
}

static bool no_keep(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find_compute(g->plans[r], INSTRUCTION_KEEP, 0);
        if (i) {
            drop(g->plans[r], i);
            return true;
        }
    }
    return false;
}

static bool no_load(struct gang *g) {
    drop(g->plans[0], find_compute(g->plans[0], INSTRUCTION_LOAD, 0));
    return true;
}

/* --- micro-batches ---*/

static bool micro_batches_swapped(struct gang *g) {
    struct plan *p = g->plans[0];
    if (plan_own_micro_batches(&p->layout) < 2)
        return false;
    int a = plan_micro_batch(&p->layout, 0, 0), b = plan_micro_batch(&p->layout, 0, 1);
    for (enum plan_queue q = 0; q < QUEUES; q++)
        for (int i = 0; i < p->queue[q].n; i++) {
            int *k = &p->queue[q].items[i].micro_batch;
            *k = *k == a ? b : *k == b ? a : *k;
        }
    return true;
}

static bool another_ranks_micro_batch(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->layout.data < 2)
        return false;
    int mine = plan_micro_batch(&p->layout, 0, 0), other = plan_micro_batch(&p->layout, 1, 0);
    for (enum plan_queue q = 0; q < QUEUES; q++)
        for (int i = 0; i < p->queue[q].n; i++)
            if (p->queue[q].items[i].micro_batch == mine)
                p->queue[q].items[i].micro_batch = other;
    return true;
}

static bool forward_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_compute(p, INSTRUCTION_FORWARD, 0);
    insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
    return true;
}

static bool loss_twice(struct gang *g) {
    struct plan *p = g->plans[g->n - 1];
    struct instruction_list *list = &p->queue[QUEUE_COMPUTE];
    for (int i = 0; i < list->n; i++)
        if (list->items[i].kind == INSTRUCTION_FORWARD && g->graph->ops[list->items[i].op].out[0] == g->graph->losses) {
            insert(p, i, list->items[i]);
            return true;
        }
    return false;
}

/* --- gradients ---*/

static bool overwritten_accumulation(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->layout.reduce != PLAN_REDUCE_STEP || p->layout.micro_batches == p->layout.lanes)
        return false;
    for (int i = 0; i < p->queue[QUEUE_COMPUTE].n; i++)
        if (p->queue[QUEUE_COMPUTE].items[i].kind == INSTRUCTION_BACKWARD_INPUT)
            p->queue[QUEUE_COMPUTE].items[i].first = true;
    return true;
}

static bool gradient_never_written(struct gang *g) {
    drop(g->plans[0], find_compute(g->plans[0], INSTRUCTION_BACKWARD_WEIGHT, 0));
    return true;
}

static bool weight_before_input(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int n = 0;; n++) {
        struct instruction *i = find_compute(p, INSTRUCTION_BACKWARD_INPUT, n);
        if (!i)
            return false;
        if (i[1].kind == INSTRUCTION_BACKWARD_WEIGHT && i[1].op == i->op && i[1].flight == i->flight) {
            swap(i, i + 1);
            return true;
        }
    }
}

static bool lanes_added_the_other_way(struct gang *g) {
    struct instruction *add = find_range(g->plans[0], INSTRUCTION_ADD, 0);
    if (!add || add->first || g->plans[0]->accumulator >= 0)
        return false;
    int buffer = add->buffer;
    add->buffer = add->source;
    add->source = buffer;
    return true;
}

static bool missing_addition(struct gang *g) {
    struct instruction *add = find_range(g->plans[0], INSTRUCTION_ADD, 0);
    if (add)
        drop(g->plans[0], add);
    return add;
}

static bool addition_that_cuts_a_gradient(struct gang *g) {
    struct instruction *add = find_range(g->plans[0], INSTRUCTION_ADD, 0);
    if (add)
        add->end -= 1;
    return add;
}

static bool accumulator_of_anothers_part(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->accumulator < 0 || p->layout.data < 2)
        return false;
    for (int n = 0;; n++) {
        struct instruction *add = find_range(p, INSTRUCTION_ADD, n);
        if (!add)
            return false;
        if (add->buffer != p->accumulator)
            continue;
        int bucket = plan_bucket_at(p, add->begin);
        int64_t begin, end;
        plan_own_range(p, bucket, 1, &begin, &end);
        if (begin >= end || p->layout.zero < 2)
            continue;
        add->begin = begin;
        add->end = end;
        return true;
    }
}

static bool missing_buffer(struct gang *g) {
    find_compute(g->plans[0], INSTRUCTION_BACKWARD_WEIGHT, 0)->buffer = 31;
    return true;
}

/* --- reductions ---*/

static bool missing_wait_for_a_reduction(struct gang *g) {
    struct plan *p = g->plans[g->n - 1];
    bool any = false;
    for (int i = p->queue[QUEUE_COMPUTE].n - 1; i >= 0; i--) {
        struct instruction *w = &p->queue[QUEUE_COMPUTE].items[i];
        if (w->kind == INSTRUCTION_WAIT && w->queue == QUEUE_DATA &&
            p->queue[QUEUE_DATA].items[w->entry].kind == INSTRUCTION_REDUCE) {
            drop(p, w);
            any = true;
        }
    }
    return any;
}

static bool reduction_too_early(struct gang *g) {
    struct instruction *r = find(g->plans[0], QUEUE_DATA, INSTRUCTION_REDUCE, 0);
    if (!r)
        return false;
    int from = (int)(r - g->plans[0]->queue[QUEUE_DATA].items);
    for (int i = 0; i <= from; i++) { /* `after` never falls */
        int *after = &g->plans[0]->queue[QUEUE_DATA].items[i].after;
        *after = *after < r->after - 2 ? *after : r->after - 2;
    }
    return true;
}

static bool reductions_in_another_order(struct gang *g) {
    struct plan *p = g->plans[g->n - 1];
    struct instruction *a = find(p, QUEUE_DATA, INSTRUCTION_REDUCE, 0), *b = find(p, QUEUE_DATA, INSTRUCTION_REDUCE, 1);
    if (!b || b != a + 1)
        return false;
    swap(a, b);
    a->after = b->after = a->after > b->after ? a->after : b->after;
    return true;
}

static bool one_reduction_fewer(struct gang *g) {
    struct plan *p = g->plans[g->n - 1];
    struct instruction *r = find(p, QUEUE_DATA, INSTRUCTION_REDUCE, 0);
    if (r)
        drop_entry(p, QUEUE_DATA, (int)(r - p->queue[QUEUE_DATA].items));
    return r;
}

static bool reduction_of_half_a_bucket(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find(g->plans[r], QUEUE_DATA, INSTRUCTION_REDUCE, 0);
        if (!i)
            return false;
        i->end -= PLAN_CHUNK;
    }
    return true;
}

static bool cut_otherwise_on_one_rank(struct gang *g) {
    struct plan *p = g->plans[g->n - 1];
    if (p->layout.data < 2 || p->layout.zero)
        return false;
    for (int b = 0; b < p->n_buckets; b++) {
        int chunks = (int)((p->buckets[b].end - p->buckets[b].begin) / PLAN_CHUNK);
        if (chunks < 2)
            continue;
        free(p->buckets[b].cut);
        p->buckets[b].cut = calloc((size_t)p->layout.data + 1, sizeof(int));
        for (int j = 1; j <= p->layout.data; j++)
            p->buckets[b].cut[j] = chunks;
        return true;
    }
    return false;
}

static bool parts_that_do_not_tile(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->layout.data < 2)
        return false;
    free(p->buckets[0].cut);
    p->buckets[0].cut = calloc((size_t)p->layout.data + 1, sizeof(int));
    return true;
}

static bool staging_of_two_buckets_in_one_place(struct gang *g) {
    struct plan *p = g->plans[0];
    if (!p->staged)
        return false;
    for (int b = 1; b < p->n_buckets; b++)
        p->staging_offset[b] = p->staging_offset[0];
    return true;
}

/* --- norms, the optimizer, weights ---*/

static bool norm_left_out(struct gang *g) {
    struct instruction *i = find_range(g->plans[0], INSTRUCTION_NORM, 0);
    if (i)
        drop(g->plans[0], i);
    return i;
}

static bool norm_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_range(p, INSTRUCTION_NORM, 0);
    if (i)
        insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
    return i;
}

static bool norm_of_a_missing_piece(struct gang *g) {
    struct instruction *i = find_range(g->plans[0], INSTRUCTION_NORM, 0);
    if (i)
        i->end = g->plans[0]->n_pieces + 1;
    return i;
}

static bool norms_stay_at_home(struct gang *g) {
    bool any = false;
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find(g->plans[r], QUEUE_DATA, INSTRUCTION_EXCHANGE_NORMS, 0);
        if (!i)
            return false;
        any = true;
        drop_entry(g->plans[r], QUEUE_DATA, (int)(i - g->plans[r]->queue[QUEUE_DATA].items));
    }
    return any;
}

static bool norms_leave_too_early(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find(p, QUEUE_DATA, INSTRUCTION_EXCHANGE_NORMS, 0), *norm = NULL;
    for (int n = 0; find_range(p, INSTRUCTION_NORM, n); n++)
        norm = find_range(p, INSTRUCTION_NORM, n);
    if (!i || !norm)
        return false;
    i->after = (int)(norm - p->queue[QUEUE_COMPUTE].items);
    for (struct instruction *before = p->queue[QUEUE_DATA].items; before < i; before++)
        before->after = before->after < i->after ? before->after : i->after;
    return true;
}

static bool decided_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_compute(p, INSTRUCTION_DECIDE, 0);
    insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
    return true;
}

static bool step_before_the_decision(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_range(p, INSTRUCTION_STEP, 0), step;
    if (!i)
        return false;
    step = *i;
    drop(p, i);
    insert(p, (int)(find_compute(p, INSTRUCTION_DECIDE, 0) - p->queue[QUEUE_COMPUTE].items), step);
    return true;
}

static bool never_stepped(struct gang *g) {
    struct instruction *i = find_range(g->plans[0], INSTRUCTION_STEP, 0);
    if (i)
        i->end--;
    return i;
}

static bool stepped_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_range(p, INSTRUCTION_STEP, 0);
    if (i)
        insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
    return i;
}

/* The gradient goes away between the norm and the step. */
static bool stepped_without_its_gradient(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->lane_buffers < 2 || p->layout.zero >= 2 || p->result != 0)
        return false;
    int at = (int)(find_compute(p, INSTRUCTION_DECIDE, 0) - p->queue[QUEUE_COMPUTE].items) + 1;
    insert(p, at,
           (struct instruction){ .kind = INSTRUCTION_ADD,
                                 .op = -1,
                                 .micro_batch = -1,
                                 .flight = -1,
                                 .chunk = -1,
                                 .buffer = 1,
                                 .source = 0,
                                 .entry = -1,
                                 .peer = -1,
                                 .first = true,
                                 .begin = 0,
                                 .end = p->gradient_elements });
    return true;
}

static bool read_after_the_step(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int n = 0;; n++) {
        struct instruction *f = find_compute(p, INSTRUCTION_FORWARD, n);
        if (g->graph->ops[f->op].slot[0] < 0)
            continue;
        insert(p, p->queue[QUEUE_COMPUTE].n, *f);
        return true;
    }
}

static bool piece_of_another_rank(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->n_pieces < 2)
        return false;
    p->pieces[0].first += PLAN_CHUNK;
    return true;
}

static bool new_weights_stay_at_home(struct gang *g) {
    if (g->plans[0]->layout.zero < 1 || g->plans[0]->layout.zero > 2)
        return false;
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find(g->plans[r], QUEUE_DATA, INSTRUCTION_GATHER, 0);
        if (!i)
            return false;
        drop_entry(g->plans[r], QUEUE_DATA, (int)(i - g->plans[r]->queue[QUEUE_DATA].items));
    }
    return true;
}

static bool gathered_before_the_step(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find(p, QUEUE_DATA, INSTRUCTION_GATHER, 0);
    if (!i || p->layout.zero == 3 || p->buckets[i->entry].n_pieces == 0)
        return false;
    for (struct instruction *x = p->queue[QUEUE_DATA].items; x <= i; x++) {
        int decide = (int)(find_compute(p, INSTRUCTION_DECIDE, 0) - p->queue[QUEUE_COMPUTE].items);
        x->after = x->after < decide ? x->after : decide;
    }
    i->after = (int)(find_compute(p, INSTRUCTION_DECIDE, 0) - p->queue[QUEUE_COMPUTE].items) + 1;
    return true;
}

/* --- families ---*/

static bool weights_in_one_place(struct gang *g) {
    struct plan *p = g->plans[0];
    int before = -1;
    for (int i = 0; i < g->graph->n_parameters && p->layout.zero < 3; i++) {
        if (p->parameter_begin[i] < 0)
            continue;
        if (before >= 0) {
            p->parameter_begin[i] = p->parameter_begin[before];
            return true;
        }
        before = i;
    }
    return false;
}

static bool weights_outside(struct gang *g) {
    g->plans[0]->family_bytes[FAMILY_PARAMETERS] /= 2;
    return true;
}

static bool states_in_one_place(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int i = 0; i < p->n_pieces; i++)
        if (p->pieces[i].state[0] != SIZE_MAX && p->pieces[i].state[1] != SIZE_MAX) {
            p->pieces[i].state[1] = p->pieces[i].state[0];
            return true;
        }
    return false;
}

static bool states_outside(struct gang *g) {
    g->plans[0]->family_bytes[FAMILY_OPTIMIZER] /= 2;
    return true;
}

static bool no_state(struct gang *g) {
    if (!g->plans[0]->n_pieces)
        return false;
    g->plans[0]->pieces[0].state[0] = SIZE_MAX;
    return true;
}

static bool average_missing(struct gang *g) {
    if (!g->plans[0]->layout.ema)
        return false;
    g->plans[0]->pieces[0].ema = SIZE_MAX;
    return true;
}

static bool gradients_outside(struct gang *g) {
    if (!g->plans[0]->family_bytes[FAMILY_GRADIENTS])
        return false;
    g->plans[0]->family_bytes[FAMILY_GRADIENTS] /= 2;
    return true;
}

static bool small_workspace(struct gang *g) {
    g->plans[0]->family_bytes[FAMILY_WORKSPACE] -= PLAN_ALIGN;
    g->plans[0]->layout.workspace_bytes += PLAN_ALIGN;
    return true;
}

static bool communication_outside(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->layout.zero < 3 && !p->staged)
        return false;
    p->family_bytes[FAMILY_COMMUNICATION] /= 4;
    return true;
}

static bool chunk_sums_in_one_place(struct gang *g) {
    for (int r = 0; r < g->n; r++)
        g->plans[r]->parameter_norm[1] = g->plans[r]->parameter_norm[0];
    return true;
}

static bool slot_misplaced(struct gang *g) {
    struct plan *p = g->plans[0];
    p->slot_begin[p->slot_order[1]] += PLAN_CHUNK;
    return true;
}

static bool bucket_misplaced(struct gang *g) {
    g->plans[0]->buckets[0].end += PLAN_CHUNK;
    return true;
}

static bool ranks_that_disagree(struct gang *g) {
    if (g->n < 2)
        return false;
    g->plans[1]->layout.reduce = g->plans[1]->layout.reduce == PLAN_REDUCE_STEP ? PLAN_REDUCE_MICRO_BATCH
                                                                                : PLAN_REDUCE_STEP;
    return true;
}

static bool ranks_swapped(struct gang *g) {
    if (g->n < 2)
        return false;
    struct plan *p = g->plans[0];
    g->plans[0] = g->plans[1];
    g->plans[1] = p;
    return true;
}

/* --- numbers that name nothing, places of nothing ---*/

static struct instruction *first_forward(struct plan *p) { return find_compute(p, INSTRUCTION_FORWARD, 0); }

static bool missing_op(struct gang *g) {
    first_forward(g->plans[0])->op = g->graph->n_ops;
    return true;
}

static bool op_of_another_stage(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int o = 0; o < g->graph->n_ops; o++)
        if (p->block_chunk[g->graph->ops[o].block] < 0) {
            first_forward(p)->op = o;
            return true;
        }
    return false;
}

static bool reverse_op_of_another_stage(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int r = 0; r < g->graph->n_reverse; r++)
        if (p->block_chunk[g->graph->ops[g->graph->reverse[r].op].block] < 0) {
            find_compute(p, INSTRUCTION_BACKWARD_INPUT, 0)->op = r;
            return true;
        }
    return false;
}

static bool transfer_in_the_compute_queue(struct gang *g) {
    first_forward(g->plans[0])->kind = INSTRUCTION_SEND;
    return true;
}

static bool compute_in_the_data_queue(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        if (!g->plans[r]->queue[QUEUE_DATA].n)
            return false;
        g->plans[r]->queue[QUEUE_DATA].items[0].kind = INSTRUCTION_DECIDE;
    }
    return true;
}

static bool losses_not_exchanged(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find(g->plans[r], QUEUE_DATA, INSTRUCTION_EXCHANGE, 0);
        if (!i)
            return false;
        drop_entry(g->plans[r], QUEUE_DATA, (int)(i - g->plans[r]->queue[QUEUE_DATA].items));
    }
    return true;
}

static bool tensor_without_a_place(struct gang *g) {
    struct plan *p = g->plans[0];
    p->tensors[LIFE_FORWARD][g->graph->ops[first_forward(p)->op].out[0]].offset = SIZE_MAX;
    return true;
}

/* An op's two outputs. */
static bool two_outputs_in_one_place(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int o = 0; o < g->graph->n_ops; o++) {
        const struct op *op = &g->graph->ops[o];
        if (op->kind != &op_attention || p->block_chunk[op->block] < 0)
            continue;
        for (int l = 0; l < LIVES; l++)
            if (p->tensors[l][op->out[1]].offset != SIZE_MAX)
                p->tensors[l][op->out[1]].offset = p->tensors[l][op->out[0]].offset;
        return true;
    }
    return false;
}

static bool view_of_nothing(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int n = 0;; n++) {
        struct instruction *i = find_compute(p, INSTRUCTION_BACKWARD_INPUT, n);
        struct tensor_access a;
        if (!i)
            return false;
        plan_access(p, i, &a);
        if (!a.n_views)
            continue;
        struct tensor_place *place = &p->tensors[instruction_life(p, i)][a.views[0]];
        place->offset = p->family_bytes[FAMILY_ACTIVATIONS];
        p->family_bytes[FAMILY_ACTIVATIONS] += plan_tensor_bytes(p, a.views[0]) + (size_t)place->copies * place->stride;
        return true;
    }
}

static bool input_gradient_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int n = 0;; n++) {
        struct instruction *i = find_compute(p, INSTRUCTION_BACKWARD_INPUT, n);
        if (!i)
            return false;
        if (g->graph->ops[g->graph->reverse[i->op].op].kind != &op_attention)
            continue;
        insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
        return true;
    }
}

static bool weight_gradient_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int n = 0;; n++) {
        struct instruction *i = find_compute(p, INSTRUCTION_BACKWARD_WEIGHT, n);
        if (!i)
            return false;
        if (i->first)
            continue;
        insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
        return true;
    }
}

static bool addition_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_range(p, INSTRUCTION_ADD, 0);
    if (i)
        insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
    return i;
}

static bool addition_to_itself(struct gang *g) {
    struct instruction *i = find_range(g->plans[0], INSTRUCTION_ADD, 0);
    if (i)
        i->source = i->buffer;
    return i;
}

static bool missing_piece(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_range(p, INSTRUCTION_NORM, 0);
    if (i) {
        i->begin = p->n_pieces;
        i->end = p->n_pieces + 1;
    }
    return i;
}

static bool missing_slot(struct gang *g) {
    struct instruction *i = find_range(g->plans[0], INSTRUCTION_ADD_SLOT, 0);
    if (i)
        i->source = g->graph->n_slots;
    return i;
}

/* --- gradient space, buckets, pieces ---*/

static bool slot_missing_from_gradient_space(struct gang *g) {
    struct plan *p = g->plans[0];
    int s = p->slot_order[--p->n_own_slots];
    p->gradient_elements = p->slot_begin[s];
    p->slot_begin[s] = p->slot_end[s] = -1;
    return true;
}

static bool gradient_space_too_long(struct gang *g) {
    if (g->plans[0]->layout.stages > 1) /* there it is what lands that would be misplaced */
        return false;
    g->plans[0]->gradient_elements += PLAN_CHUNK;
    return true;
}

static bool bucket_missing(struct gang *g) {
    int last = --g->plans[0]->n_buckets;
    free(g->plans[0]->buckets[last].cut); /* plan_free looks no further than n_buckets */
    g->plans[0]->buckets[last].cut = NULL;
    return true;
}

static bool shared_slots_bucket_has_another(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int b = 0; b + 1 < p->n_buckets; b++) {
        int64_t last = p->buckets[b + 1].begin;
        for (int k = 0; k < p->n_own_slots; k++) {
            int s = p->slot_order[k];
            bool shared = g->graph->slots[g->graph->parameters[g->graph->slots[s].parameter].first_slot].next_slot >= 0;
            if (!shared || p->slot_begin[s] != last || p->buckets[b].end - p->buckets[b].begin <= PLAN_CHUNK ||
                p->buckets[b].cut)
                continue;
            p->buckets[b].end -= PLAN_CHUNK;
            p->buckets[b + 1].begin -= PLAN_CHUNK;
            return true;
        }
    }
    return false;
}

static bool bucket_that_cuts_a_parameter(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int b = 0; b + 1 < p->n_buckets && p->layout.zero >= 2; b++) {
        for (int k = 0; k < p->n_own_slots; k++) {
            int s = p->slot_order[k];
            bool shared = g->graph->slots[g->graph->parameters[g->graph->slots[s].parameter].first_slot].next_slot >= 0;
            if (shared || p->slot_end[s] != p->buckets[b].end || p->slot_end[s] - p->slot_begin[s] <= PLAN_CHUNK ||
                b + 2 >= p->n_buckets)
                continue;
            const struct plan_bucket *next = &p->buckets[b + 1];
            bool next_shared = false;
            for (int n = 0; n < p->n_own_slots; n++)
                if (p->slot_begin[p->slot_order[n]] == next->begin)
                    next_shared =
                        g->graph->slots[g->graph->parameters[g->graph->slots[p->slot_order[n]].parameter].first_slot]
                            .next_slot >= 0;
            if (next_shared)
                continue;
            p->buckets[b].end -= PLAN_CHUNK;
            p->buckets[b + 1].begin -= PLAN_CHUNK;
            return true;
        }
    }
    return false;
}

static bool part_that_cuts_a_tensor(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int b = 0; b < p->n_buckets; b++) {
        struct plan_bucket *x = &p->buckets[b];
        if (!x->cut || (x->end - x->begin) / PLAN_CHUNK < 2)
            continue;
        for (int j = 1; j < p->layout.data; j++)
            x->cut[j] = 1;
        for (int k = 0; k < p->n_own_slots; k++)
            if (p->slot_begin[p->slot_order[k]] == x->begin && p->slot_end[p->slot_order[k]] - x->begin > PLAN_CHUNK)
                return true;
    }
    return false;
}

static bool pieces_misnumbered(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->n_buckets < 2)
        return false;
    p->buckets[1].first_piece++;
    return true;
}

static bool too_many_pieces_in_a_bucket(struct gang *g) {
    g->plans[0]->buckets[g->plans[0]->n_buckets - 1].n_pieces++;
    return true;
}

static bool piece_of_no_bucket(struct gang *g) {
    g->plans[0]->n_pieces++;
    return true;
}

static bool piece_steps_another_place(struct gang *g) {
    if (g->plans[0]->layout.zero == 3 || !g->plans[0]->n_pieces)
        return false;
    g->plans[0]->pieces[0].weight += PLAN_CHUNK;
    return true;
}

static bool weight_without_a_place(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->layout.zero == 3)
        return false;
    for (int i = 0; i < g->graph->n_parameters; i++)
        if (p->parameter_begin[i] >= 0) {
            /* One that this rank steps no piece of, so that nobody misses it before an op does. */
            bool stepped = false;
            for (int k = 0; k < p->n_pieces; k++)
                stepped |= p->pieces[k].parameter == i;
            if (stepped)
                continue;
            p->parameter_begin[i] = -1;
            return true;
        }
    return false;
}

const struct plan_break BREAKS_OF_A_RANK[] = {
#define BREAK(function, says)                                                                                          \
    { #function, function, says }
    BREAK(read_before_write, "is not live when it is read"),
    BREAK(two_live_tensors_in_one_place, "is not live when it is read|is written over|to the same bytes"),
    BREAK(output_over_its_input, "is written over"),
    BREAK(tensor_outside_its_family, "ends outside its family"),
    BREAK(too_few_copies, "is not live when it is read|which a transfer still holds"),
    BREAK(copies_that_overlap, "copies of tensor"),
    BREAK(no_recompute, "is not live when it is read"),
    BREAK(recompute_of_another_micro_batch, "is not live when it is read"),
    BREAK(no_keep, "is not live when it is read"),
    BREAK(no_load, "is not live when it is read"),
    BREAK(micro_batches_swapped, "is not number|meets"),
    BREAK(another_ranks_micro_batch, "is not number|meets"),
    BREAK(forward_twice, "runs forward for|is not live"),
    BREAK(loss_twice, "is not computed once, by its owner|is not live"),
    BREAK(overwritten_accumulation,
          "after the whole step|all of the rank's lanes|complete|no node of the tree|does not follow"),
    BREAK(gradient_never_written, "does not follow|complete|all of the rank's lanes|whole step"),
    BREAK(weight_before_input, "comes before its input's"),
    BREAK(lanes_added_the_other_way, "which is no node of the tree|complete"),
    BREAK(missing_addition, "whole step|all of the rank's lanes|complete|no node|still in use"),
    BREAK(addition_that_cuts_a_gradient, "cuts a gradient in two"),
    BREAK(accumulator_of_anothers_part, "has no place for another rank's part"),
    BREAK(missing_buffer, "gradient buffer 31 does not exist"),
    BREAK(missing_wait_for_a_reduction, "while it is being|never waited for|before"),
    BREAK(reduction_too_early, "before all of the rank's lanes are in|still in use|before"),
    BREAK(reductions_in_another_order, "of the data queue is"),
    BREAK(one_reduction_fewer, "of the data queue is|waits for ever|before|after the whole step|still in use"),
    BREAK(reduction_of_half_a_bucket, "is not bucket"),
    BREAK(cut_otherwise_on_one_rank, "is cut differently"),
    BREAK(parts_that_do_not_tile, "is not cut in parts that tile it"),
    BREAK(staging_of_two_buckets_in_one_place, "bytes that are still in use"),
    BREAK(norm_left_out, "the norm leaves out"),
    BREAK(norm_twice, "is not taken once"),
    BREAK(norm_of_a_missing_piece, "does not exist|is not taken once|while it is being"),
    BREAK(norms_stay_at_home, "before the other ranks' sums are in"),
    BREAK(norms_leave_too_early, "the norm leaves out"),
    BREAK(decided_twice, "is decided on once"),
    BREAK(step_before_the_decision, "after the decision"),
    BREAK(never_stepped, "is never stepped|is gathered before"),
    BREAK(stepped_twice, "is not stepped once|while a copy of it is in use"),
    BREAK(stepped_without_its_gradient,
          "without the gradient of the whole step|cuts a gradient|while it is being|complete"),
    BREAK(read_after_the_step, "is read after it was stepped|is not gathered"),
    BREAK(piece_of_another_rank, "is not what this rank owns"),
    BREAK(new_weights_stay_at_home, "does not come back|before all of that is stepped"),
    BREAK(gathered_before_the_step, "is gathered before"),
    BREAK(weights_in_one_place, "overlaps another one"),
    BREAK(weights_outside, "ends outside its family"),
    BREAK(states_in_one_place, "overlaps another one"),
    BREAK(states_outside, "ends outside its family"),
    BREAK(no_state, "has no place"),
    BREAK(average_missing, "has no place"),
    BREAK(gradients_outside, "ends outside its family"),
    BREAK(small_workspace, "workspace is smaller"),
    BREAK(communication_outside, "has no place|have no place"),
    BREAK(chunk_sums_in_one_place, "chunk sums of"),
    BREAK(slot_misplaced, "is misplaced"),
    BREAK(bucket_misplaced, "is misplaced|tile it"),
    BREAK(ranks_that_disagree, "do not plan the same step"),
    BREAK(ranks_swapped, "is not where it belongs"),
    BREAK(missing_op, "does not exist"),
    BREAK(op_of_another_stage, "is another stage's"),
    BREAK(reverse_op_of_another_stage, "is another stage's"),
    BREAK(transfer_in_the_compute_queue, "has no place in the compute queue"),
    BREAK(compute_in_the_data_queue, "DECIDE has no place there"),
    BREAK(losses_not_exchanged, "do not learn of each other's losses"),
    BREAK(tensor_without_a_place, "is used but has no place"),
    BREAK(two_outputs_in_one_place, "are written to the same bytes"),
    BREAK(view_of_nothing, "is a view of bytes that hold nothing"),
    BREAK(input_gradient_twice, "is not the next one"),
    BREAK(weight_gradient_twice, "does not follow the one before it in lane"),
    BREAK(addition_twice, "is added before it is complete"),
    BREAK(addition_to_itself, "is added to itself"),
    BREAK(missing_piece, "does not exist"),
    BREAK(missing_slot, "no such slot is added"),
    BREAK(slot_missing_from_gradient_space, "is misplaced"),
    BREAK(gradient_space_too_long, "slots do not fill gradient space"),
    BREAK(bucket_missing, "buckets do not fill gradient space"),
    BREAK(shared_slots_bucket_has_another, "shares a bucket"),
    BREAK(bucket_that_cuts_a_parameter, "is cut by the edge of a bucket"),
    BREAK(part_that_cuts_a_tensor, "but its optimizer steps whole tensors"),
    BREAK(pieces_misnumbered, "the pieces of bucket 1 are misnumbered"),
    BREAK(too_many_pieces_in_a_bucket, "are misnumbered"),
    BREAK(piece_of_no_bucket, "belongs to no bucket"),
    BREAK(piece_steps_another_place, "is stepped at another place than it is read"),
    BREAK(weight_without_a_place, "is read but has no place"),
};
const int N_BREAKS_OF_A_RANK = sizeof BREAKS_OF_A_RANK / sizeof *BREAKS_OF_A_RANK;
