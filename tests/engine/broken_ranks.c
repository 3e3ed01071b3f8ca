/* Mistakes of a single rank, in its instructions or in their order. Each function changes one plan of a
 * valid gang and returns whether the layout has such an instruction. BREAKS_OF_A_RANK at the end names the functions
 * and the message that the verifier must give. */
#include "tests/engine/broken_plans.h"

#include "engine/graph/op.h"
#include "engine/model/gpt.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/plan.h"
#include "engine/plan/verify/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* --- ways to break a plan: a function returns false if this layout has nothing that it can break --- */

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
        if (op->kind != &op_attention || p->block_virtual_stage[op->block] < 0)
            continue;
        /* Its input overlaps the residual stream, which is alive at the same time. */
        const struct block *b = &g->graph->blocks[op->block];
        int stream = p->storage[g->graph->ops[b->first_op].in[0]];
        struct tensor_place *mine = p->tensors[LIFETIME_FORWARD], *back = p->tensors[LIFETIME_BACKWARD];
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
        if (op->kind != &op_linear || p->block_virtual_stage[op->block] < 0 ||
            p->storage[op->in[0]] == p->storage[op->out[0]])
            continue;
        for (int l = 0; l < LIFETIMES; l++)
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

/* One copy of a tensor, although several micro-batches need their own. */
static bool too_few_copies(struct gang *g) {
    bool any = false;
    struct plan *p = g->plans[0];
    for (int l = 0; l < LIFETIMES; l++)
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
        if (p->tensors[LIFETIME_FORWARD][t].copies > 1) {
            p->tensors[LIFETIME_FORWARD][t].stride /= 2;
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
        i->in_flight = !i->in_flight;
        i->micro_batch = plan_micro_batch(&p->layout, 0, i->in_flight);
    }
    return i;
}

static bool no_keep(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find_compute(g->plans[r], INSTRUCTION_COPY_GRADIENT, 0);
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
        if (i[1].kind == INSTRUCTION_BACKWARD_WEIGHT && i[1].op == i->op && i[1].in_flight == i->in_flight) {
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
    for (int i = 0; i <= from; i++) { /* `after` never decreases along a queue */
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
        free(p->buckets[b].part_begin);
        p->buckets[b].part_begin = calloc((size_t)p->layout.data + 1, sizeof(int));
        for (int j = 1; j <= p->layout.data; j++)
            p->buckets[b].part_begin[j] = chunks;
        return true;
    }
    return false;
}

static bool parts_that_do_not_tile(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->layout.data < 2)
        return false;
    free(p->buckets[0].part_begin);
    p->buckets[0].part_begin = calloc((size_t)p->layout.data + 1, sizeof(int));
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

static bool norm_of_a_missing_shard(struct gang *g) {
    struct instruction *i = find_range(g->plans[0], INSTRUCTION_NORM, 0);
    if (i)
        i->end = g->plans[0]->n_shards + 1;
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

/* The gradient is lost between the norm and the step. */
static bool stepped_without_its_gradient(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->lane_buffers < 2 || p->layout.zero >= 2 || p->result != 0)
        return false;
    int at = (int)(find_compute(p, INSTRUCTION_DECIDE, 0) - p->queue[QUEUE_COMPUTE].items) + 1;
    insert(p, at,
           (struct instruction){ .kind = INSTRUCTION_ADD,
                                 .op = -1,
                                 .micro_batch = -1,
                                 .in_flight = -1,
                                 .virtual_stage = -1,
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
        if (g->graph->ops[f->op].use[0] < 0)
            continue;
        insert(p, p->queue[QUEUE_COMPUTE].n, *f);
        return true;
    }
}

static bool shard_of_another_rank(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->n_shards < 2)
        return false;
    p->shards[0].first += PLAN_CHUNK;
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
    if (!i || p->layout.zero == 3 || p->buckets[i->entry].n_shards == 0)
        return false;
    for (struct instruction *x = p->queue[QUEUE_DATA].items; x <= i; x++) {
        int decide = (int)(find_compute(p, INSTRUCTION_DECIDE, 0) - p->queue[QUEUE_COMPUTE].items);
        x->after = x->after < decide ? x->after : decide;
    }
    i->after = (int)(find_compute(p, INSTRUCTION_DECIDE, 0) - p->queue[QUEUE_COMPUTE].items) + 1;
    return true;
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
    BREAK(micro_batches_swapped, "is not number|matches"),
    BREAK(another_ranks_micro_batch, "is not number|matches"),
    BREAK(forward_twice, "runs forward for|is not live"),
    BREAK(loss_twice, "is not computed once, by its owner|is not live"),
    BREAK(overwritten_accumulation,
          "after the whole step|all of the rank's lanes|complete|not a node of the tree|does not follow"),
    BREAK(gradient_never_written, "does not follow|complete|all of the rank's lanes|whole step"),
    BREAK(weight_before_input, "comes before its input's"),
    BREAK(lanes_added_the_other_way, "which is not a node of the tree|complete"),
    BREAK(missing_addition, "whole step|all of the rank's lanes|complete|not a node|still in use"),
    BREAK(addition_that_cuts_a_gradient, "cuts a gradient in two"),
    BREAK(accumulator_of_anothers_part, "has no place for another rank's part"),
    BREAK(missing_buffer, "gradient buffer 31 does not exist"),
    BREAK(missing_wait_for_a_reduction, "while it is being|never waited for|before"),
    BREAK(reduction_too_early, "before all of the rank's lanes are in|still in use|before"),
    BREAK(reductions_in_another_order, "of the data queue is"),
    BREAK(one_reduction_fewer, "of the data queue is|waits forever|before|after the whole step|still in use"),
    BREAK(reduction_of_half_a_bucket, "is not bucket"),
    BREAK(cut_otherwise_on_one_rank, "is cut differently"),
    BREAK(parts_that_do_not_tile, "is not cut in parts that tile it"),
    BREAK(staging_of_two_buckets_in_one_place, "bytes that are still in use"),
    BREAK(norm_left_out, "the norm leaves out"),
    BREAK(norm_twice, "is not taken once"),
    BREAK(norm_of_a_missing_shard, "does not exist|is not taken once|while it is being"),
    BREAK(norms_stay_at_home, "before the other ranks' sums are in"),
    BREAK(norms_leave_too_early, "the norm leaves out"),
    BREAK(decided_twice, "is decided on once"),
    BREAK(step_before_the_decision, "after the decision"),
    BREAK(never_stepped, "is never stepped|is gathered before"),
    BREAK(stepped_twice, "is not stepped once|while a copy of it is in use"),
    BREAK(stepped_without_its_gradient,
          "without the gradient of the whole step|cuts a gradient|while it is being|complete"),
    BREAK(read_after_the_step, "is read after it was stepped|is not gathered"),
    BREAK(shard_of_another_rank, "is not what this rank owns"),
    BREAK(new_weights_stay_at_home, "does not reach the rank|before all of that is stepped"),
    BREAK(gathered_before_the_step, "is gathered before"),
};
const int N_BREAKS_OF_A_RANK = sizeof BREAKS_OF_A_RANK / sizeof *BREAKS_OF_A_RANK;
